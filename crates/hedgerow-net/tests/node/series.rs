//! Nodes that make inputs of the time and of earlier rows.

use hedgerow_config::Layer;
use hedgerow_net::learning::config::read_plan;

use super::*;

/// Rows of a table with a time, an input and a label.
fn row(time: u64) -> String {
    let (x, y) = sample(0, time);
    format!("2026-03-{:02} {:02}:00,{},{y}\n", 1 + time / 24, time % 24, x[0])
}

const LEARNING: &str = "[learning]\nmethod = \"mk\"\ncolumns = [\"a\"]\ntarget = \"y\"\nnodes = 1\n\
                        time = \"when\"\ncalendar = \"hour\"\nlags = 2\nscaling = \"none\"";

fn series_plan() -> (String, Plan) {
    let plan = read_plan(&[Layer::toml("", LEARNING).unwrap()], None).unwrap();
    checked(plan.config().clone())
}

/// Lets a node learn from rows; it is restarted after these numbers of them. Returns its output.
async fn lives(ends: &[u64]) -> Vec<serde_json::Value> {
    let mut test_server = TestServer::new();
    let (json, plan) = series_plan();
    let mut server = plan.server();
    let path = test_server.path("log.csv");
    append(&path, "when,a,y\n");
    let changes =
        ["samples.source=follow", &format!("samples.path={path:?}"), "samples.pace=round"];
    let (mut all, mut taken) = (Vec::new(), 0);
    let starts = [0].into_iter().chain(ends.iter().copied());
    for times in starts.zip(ends).map(|(start, end)| start..*end) {
        let node = test_server.follower(test_server.settings(&changes));
        let mut session = test_server.next().await;
        session.welcome("r1", &json).await;
        session.broadcast(server.broadcast(), taken).await;
        append(&path, &times.clone().map(row).collect::<String>());
        // The first two rows wait for earlier ones.
        let rounds = times.end.max(2) - times.start.max(2);
        assert_eq!(serve(&mut session, server.as_mut(), rounds as usize).await, rounds as usize);
        assert!(session.is_quiet().await);
        taken += rounds;
        let (output, outcome) = node.stopped().await;
        outcome.unwrap();
        all.extend(output);
    }
    all
}

#[tokio::test(start_paused = true)]
async fn a_restart_keeps_the_past() {
    let whole = lives(&[12]).await;
    assert_eq!(whole.len(), 12);
    assert_eq!((&whole[0]["waits_for_rows"], &whole[1]["waits_for_rows"]), (&2.into(), &1.into()));
    assert!(whole[0].get("prediction").is_none());
    assert!(whole[2..].iter().all(|line| line["prediction"].is_number()), "{whole:?}");
    assert_eq!(lives(&[1, 5, 6, 12]).await, whole);
}

#[tokio::test(start_paused = true)]
async fn times_that_are_none_are_named_and_counted() {
    let mut test_server = TestServer::new();
    let (json, plan) = series_plan();
    let text = format!("when,a,y\n{}{}soon,1,2\n,1,2\n{}{}", row(0), row(1), row(1), row(2));
    let (asked, questions) = tokio::sync::mpsc::channel(1);
    let changes = ["samples.pace=round", "samples.at_end=stay"];
    let node = test_server.node(test_server.settings(&changes), cursor(text), Some(questions));
    let mut session = test_server.next().await;
    session.welcome("r1", &json).await;
    let mut server = plan.server();
    session.broadcast(server.broadcast(), 0).await;
    assert_eq!(serve(&mut session, server.as_mut(), 1).await, 1);
    let (reply, answer) = tokio::sync::oneshot::channel();
    asked.send(Asked { question: Question::Status, reply }).await.unwrap();
    let status = answer.await.unwrap().body;
    assert_eq!((&status["bad_times"], &status["waiting_lines"]), (&2.into(), &2.into()));
    let inputs = status["node"]["inputs_are"].as_str().unwrap();
    assert!(inputs.contains("2 past labels") && inputs.contains("hour of"), "{inputs}");
    let (output, outcome) = node.stopped().await;
    outcome.unwrap();
    let errors: Vec<&str> = output.iter().filter_map(|line| line["error"].as_str()).collect();
    assert_eq!(errors.len(), 3, "{output:?}");
    assert!(errors[0].starts_with("column \"when\": \"soon\" is no time"), "{}", errors[0]);
    assert!(errors[1].starts_with("column \"when\": \"\" is no time"), "{}", errors[1]);
    assert_eq!(errors[2], "its time is that of the row before");
    assert!(output[5]["prediction"].is_number(), "{output:?}");
}

#[tokio::test(start_paused = true)]
async fn a_header_must_have_the_time() {
    let mut test_server = TestServer::new();
    let (json, plan) = series_plan();
    let node = test_server.node(test_server.settings(&[]), cursor("a,y\n1,2\n"), None);
    let mut session = test_server.next().await;
    session.welcome("r1", &json).await;
    session.broadcast(plan.server().broadcast(), 0).await;
    let error = node.ended().await.1.unwrap_err().to_string();
    assert!(error.contains("no column \"when\""), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_plan_with_a_cycle_that_is_unknown_is_refused() {
    let mut test_server = TestServer::new();
    let json = series_plan().0.replace("\"calendar\":[\"hour\"]", "\"calendar\":[\"moon\"]");
    let settings = test_server.settings(&["server.once=true"]);
    let node = test_server.node(settings, cursor(""), None);
    test_server.next().await.welcome("r1", &json).await;
    let error = node.ended().await.1.unwrap_err().to_string();
    assert!(error.contains("\"moon\"") && error.contains("hour, weekday, yearday"), "{error}");
}
