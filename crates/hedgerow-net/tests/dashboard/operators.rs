//! An operator in a browser: logs in, has the server do something, logs out.

use hedgerow_net::admin::token::Token;
use hedgerow_net::operations::{Action, Actor, Outcome};
use hedgerow_net::serve::metrics::Metrics;
use hedgerow_net::serve::status::NodeState;
use serde_json::json;
use tokio::runtime::Runtime;

use super::browser::Browser;
use super::invented::Invented;
use super::{Fake, Served};
use crate::operations::Fleet;

fn is_visible(id: &str) -> String {
    format!("document.getElementById('{id}').checkVisibility()")
}

fn log_in(browser: &mut Browser, token: &str) {
    browser.wait("document.getElementById('login')?.open");
    browser.eval(
        "document.getElementById('token').value = ''; document.getElementById('token').focus()",
    );
    browser.call("Input.insertText", json!({ "text": token }));
    browser.press("Enter", 13, "\r");
}

/// Chooses an action in the open dialog, with its value.
fn choose(browser: &mut Browser, action: &str, value: &str) {
    browser.eval(&format!(
        "{{ const s = document.getElementById('deed-action'); s.value = {action:?}; \
         s.dispatchEvent(new Event('change')); document.getElementById('deed-value').value = {value:?}; }}"
    ));
    assert_eq!(browser.eval("document.getElementById('deed-action').value"), json!(action));
}

fn do_it(browser: &mut Browser) {
    browser.eval("document.getElementById('deed-do').click()");
}

fn close(browser: &mut Browser) {
    browser.eval("document.querySelector('#deed button[value=close]').click()");
    browser.wait("!document.getElementById('deed').open");
}

#[test]
fn an_operator_logs_in_and_has_the_server_do_something() {
    let Some(mut browser) = Browser::start() else { return };
    let fake = Fake::new(Invented::new("run-a", "gr", 20, 300));
    let served = Served::guarded(0, fake, Metrics::new(), true);
    browser.look(1280, 900, "light");
    browser.open(&format!("http://{}/", served.address));

    log_in(&mut browser, "not the token");
    browser.wait("document.getElementById('login-error').textContent.includes('not the token')");
    assert_eq!(browser.text("connection"), "log in to see the run");
    log_in(&mut browser, &served.token());
    browser.wait("document.getElementById('connection').textContent === 'live'");
    assert_eq!(browser.eval("document.getElementById('token').value"), json!(""));
    // Scripts can't read the session, and nothing keeps the token.
    assert_eq!(
        browser.eval("document.cookie + localStorage.length + sessionStorage.length"),
        json!("00")
    );
    assert_eq!(browser.eval(&is_visible("log-in")), json!(false));

    browser.eval("document.getElementById('operate').click()");
    choose(&mut browser, "pause", "");
    do_it(&mut browser);
    browser.wait(&is_visible("paused"));
    assert_eq!(browser.text("deed-outcome"), "invented");
    // A second time it is an error, which is shown.
    do_it(&mut browser);
    browser.wait("document.getElementById('deed-error').textContent.includes('paused already')");
    // What can't be undone needs a confirmation.
    choose(&mut browser, "rollback", "12");
    do_it(&mut browser);
    assert_eq!(
        browser.eval("document.getElementById('deed-sure').matches(':invalid')"),
        json!(true)
    );
    assert_eq!(browser.text("deed-outcome"), "");
    browser.eval("document.getElementById('deed-sure').click()");
    do_it(&mut browser);
    browser
        .wait("document.getElementById('deed-outcome').textContent === 'invented: to Round(12)'");
    close(&mut browser);

    browser.wait("document.querySelectorAll('#nodes tbody tr').length === 20");
    browser.eval("document.querySelector('#nodes tbody tr td.operate button').click()");
    assert_eq!(browser.text("deed-title"), "Node Sensor-001");
    choose(&mut browser, "ban", "wrong <b>unit</b>");
    do_it(&mut browser);
    let state = "document.querySelector('#nodes tbody tr td.state').textContent";
    browser.wait(&format!("{state} === 'banned: wrong <b>unit</b>'"));
    browser
        .wait("document.querySelector('#events li').textContent.includes('127.0.0.1 (dashboard)')");
    close(&mut browser);
    browser.eval("document.querySelector('#nodes tbody tr td.operate button').click()");
    let choices =
        browser.eval("[...document.getElementById('deed-action').options].map((o) => o.value)");
    assert_eq!(choices, json!(["unban", "forget"]));
    close(&mut browser);

    browser.look(360, 740, "dark");
    assert_eq!(browser.eval("document.documentElement.scrollWidth"), json!(360));
    browser.eval("document.getElementById('log-out').click()");
    browser.wait("document.getElementById('login')?.open");
    assert_eq!(browser.eval(&is_visible("operate")), json!(false));
    let unexpected: Vec<_> = browser
        .complaints
        .iter()
        .filter(|text| !["401", "422"].iter().any(|code| text.contains(code)))
        .collect();
    assert_eq!(unexpected, [""; 0]);
}

/// The same on a server with nodes that learn.
#[test]
fn an_operator_commands_a_running_server() {
    let Some(mut browser) = Browser::start() else { return };
    let runtime = Runtime::new().unwrap();
    let fleet = runtime.block_on(async {
        let fleet = Fleet::certified("mk").await;
        fleet.all_join().await;
        fleet
    });
    let node = || runtime.block_on(fleet.node("b")).unwrap();
    browser.look(1280, 900, "light");
    browser.open(&format!("http://{}/", fleet.server.dashboard().unwrap()));
    let token = Token::read(&fleet.store()).unwrap();
    log_in(&mut browser, &"0".repeat(64));
    browser.wait("document.getElementById('login-error').textContent !== ''");
    assert_eq!(browser.eval("document.querySelectorAll('#nodes tbody tr').length"), json!(0));
    log_in(&mut browser, token.reveal());
    browser.wait("document.querySelectorAll('#nodes tbody tr').length === 3");

    let row = "[...document.querySelectorAll('#nodes tbody tr')]\
               .find((row) => row.querySelector('th, td').textContent === 'b')";
    browser.eval(&format!("{row}.querySelector('td.operate button').click()"));
    assert_eq!(browser.text("deed-title"), "Node b");
    choose(&mut browser, "quarantine", "new firmware");
    do_it(&mut browser);
    browser.wait("document.getElementById('deed-outcome').textContent.includes('in quarantine')");
    assert_eq!((node().state, &*node().reason), (NodeState::Quarantined, "new firmware"));
    browser.wait(&format!(
        "{row}.querySelector('td.state').textContent === 'quarantined: new firmware'"
    ));
    close(&mut browser);

    browser.eval("document.getElementById('operate').click()");
    choose(&mut browser, "pause", "");
    do_it(&mut browser);
    browser.wait(&is_visible("paused"));
    assert!(fleet.status().paused);
    close(&mut browser);
    browser.eval("document.getElementById('log-out').click()");
    browser.wait("document.getElementById('login')?.open");
    let audit = Action::Audit { from: None, most: None };
    let outcome = runtime.block_on(fleet.server.operate(Actor::server(), audit)).unwrap();
    let Outcome::Audit { entries, .. } = outcome else { panic!("{outcome:?}") };
    let told = entries.iter().filter(|entry| entry.actor == "127.0.0.1 (dashboard)");
    let told: Vec<_> = told.map(|entry| (&*entry.action, &*entry.subject)).collect();
    assert_eq!(told, [("quarantine", "b"), ("pause", "run")]);
    runtime.block_on(fleet.end());
}
