//! The page in a browser.

use hedgerow_net::serve::metrics::Metrics;
use serde_json::{Value, json};

use super::browser::Browser;
use super::invented::Invented;
use super::{Fake, Served};

const NODES: u32 = 250;
/// Columns of the table of nodes.
const STATE: usize = 1;
const LAST_SAMPLE: usize = 3;
const ERROR: usize = 4;

fn served(port: u16, run: &str, method: &str, rounds: u64) -> Served {
    Served::start_at(port, Fake::new(Invented::new(run, method, NODES, rounds)), Metrics::new())
}

/// What a column of the table says, from the top.
fn column(browser: &mut Browser, index: usize) -> Vec<String> {
    let cells = browser.eval(&format!(
        "[...document.querySelectorAll('#nodes tbody tr')].map((row) => row.children[{index}].textContent)"
    ));
    serde_json::from_value(cells).unwrap()
}

fn is_sorted(cells: &[String], descending: bool) -> bool {
    let known: Vec<f64> = cells
        .iter()
        .take_while(|cell| *cell != "–")
        .map(|cell| cell.replace(',', "").parse().unwrap())
        .collect();
    known.len() > 50
        && cells[known.len()..].iter().all(|cell| cell == "–")
        && known.windows(2).all(|two| if descending { two[0] >= two[1] } else { two[0] <= two[1] })
}

#[test]
fn a_browser_shows_the_page_and_finds_the_server_again() {
    let Some(mut browser) = Browser::start() else { return };
    let first = served(0, "run-a", "mk", 15_000);
    let port = first.address.port();
    browser.look(1280, 900, "light");
    browser.open(&format!("http://127.0.0.1:{port}/"));

    shows_what_the_server_says(&mut browser);
    errors_stand_beside_the_mean_and_states_beside_their_reasons(&mut browser);
    events_are_listed(&mut browser);
    charts_follow_the_controls(&mut browser);
    importance_has_bars_and_lines(&mut browser);
    table_sorts_and_filters(&mut browser);
    everything_has_a_name(&mut browser);
    dark_and_narrow(&mut browser);
    tracks_stay_small(&mut browser);
    assert_eq!(browser.complaints, [""; 0]);

    // Away and back, with another run that has no kernels and fewer rounds.
    drop(first);
    browser
        .wait("document.getElementById('connection').textContent === 'server away, trying again'");
    browser
        .eval("window.realFetch = window.fetch; window.fetch = () => Promise.reject(new Error('away')); 0");
    let _second = served(port, "run-b", "linear", 700);
    browser.wait("document.getElementById('connection').textContent === 'live'");
    browser.wait("document.getElementById('run').textContent.includes('run-b')");
    // Nothing of the old run is left, even while the new one's past can't be had.
    browser.wait("document.getElementById('error-chart').chart.lines[0].x.at(-1) < 4000");
    assert!(
        browser.eval("document.getElementById('error-chart').chart.lines[0].x[0]").as_u64()
            >= Some(700)
    );
    browser.eval("window.fetch = window.realFetch");
    browser.wait("document.getElementById('error-chart').chart.lines[0].x[0] < 10");
    assert_eq!(browser.eval("document.getElementById('kernels').hidden"), json!(true));
    let importance = "document.getElementById('importance')";
    assert_eq!(browser.eval(&format!("{importance}.checkVisibility()")), json!(false));
    let unexpected: Vec<_> =
        browser.complaints.iter().filter(|text| !text.contains("net::ERR_")).collect();
    assert_eq!(unexpected, [""; 0]);

    let own = format!("http://127.0.0.1:{port}/");
    let strangers: Vec<_> = browser
        .requests
        .iter()
        .filter(|url| !url.starts_with(&own) && !url.starts_with("data:"))
        .collect();
    assert_eq!(strangers, [""; 0]);
    assert!(browser.requests.len() > 8);
}

fn events_are_listed(browser: &mut Browser) {
    let events =
        browser.eval("[...document.querySelectorAll('#events li')].map((li) => li.textContent)");
    let events: Vec<String> = serde_json::from_value(events).unwrap();
    assert_eq!(events.len(), 4);
    assert!(events[0].ends_with("agorounds can be stored again"), "the newest first: {events:?}");
    assert_eq!(browser.eval("document.querySelectorAll('#events li.error').length"), json!(1));
    // Nobody has logged in, and nobody is offered to change something.
    for id in ["operate", "log-out", "login", "deed", "paused"] {
        let visible = format!("document.getElementById('{id}').checkVisibility()");
        assert_eq!(browser.eval(&visible), json!(false), "{id}");
    }
}

fn shows_what_the_server_says(browser: &mut Browser) {
    browser.wait("document.getElementById('connection')?.textContent === 'live'");
    browser.wait("document.querySelectorAll('.plot svg svg > *').length > 20");
    browser.wait("document.getElementById('error-chart').chart?.lines[0].x.length > 1000");
    assert!(browser.text("run").starts_with("Run run-a; method mk, budget 100"));
    assert!(browser.text("mse").parse::<f64>().is_ok_and(|mse| mse > 0.0));
    assert!(browser.text("selected").starts_with("gaussian"));
    assert!(
        browser.text("bytes-words").contains("10.4 times as many"),
        "{}",
        browser.text("bytes-words")
    );
    assert_eq!(column(browser, 0).len(), 100);
    assert_eq!(browser.text("node-count"), "250 nodes; 100 shown");
    assert_eq!(browser.eval("document.getElementById('warning').checkVisibility()"), json!(false));
    for chart in ["error-chart", "shares-chart", "kernels-chart", "bytes-chart"] {
        let drawn = format!("document.querySelectorAll('#{chart} svg svg > *').length > 0");
        assert_eq!(browser.eval(&drawn), json!(true), "{chart}");
    }
    // It grows by events alone: the history is asked for once.
    let round = browser.eval("document.getElementById('error-chart').chart.lines[0].x.at(-1)");
    browser
        .wait(&format!("document.getElementById('error-chart').chart.lines[0].x.at(-1) > {round}"));
    assert_eq!(browser.requests.iter().filter(|url| url.ends_with("/api/history")).count(), 1);
}

fn errors_stand_beside_the_mean_and_states_beside_their_reasons(browser: &mut Browser) {
    assert_eq!(browser.text("mean-forecast"), "0.9");
    assert!(browser.text("skill").ends_with("% less"), "{}", browser.text("skill"));
    assert_eq!(browser.text("scale"), "lately; the scale changed 2 times");
    let lines = "document.getElementById('error-chart').chart.lines";
    let mean = browser.eval(&format!("[{lines}[2].name, {lines}[2].y[7]]"));
    assert_eq!(mean, json!(["each node's mean", 0.9]));
    let states = column(browser, STATE);
    for state in ["suspect: uploads", "quarantined: by", "silent: no", "connected"] {
        assert!(states.iter().any(|said| said.starts_with(state)), "{state}: {states:?}");
    }
    let seen = column(browser, LAST_SAMPLE);
    assert!(
        seen.iter().any(|said| said == "now") && seen.iter().any(|said| said == "–"),
        "{seen:?}"
    );
}

fn charts_follow_the_controls(browser: &mut Browser) {
    let axis = "document.getElementById('error-chart').chart.y.log";
    assert_eq!(browser.eval(axis), json!(true));
    // By keyboard: the arrow goes to the next choice.
    browser.eval("document.querySelector('input[name=axis]:checked').focus()");
    browser.press("ArrowRight", 39, "");
    browser.wait(&format!("{axis} === false"));
    // Twenty rounds a second, so that 12,000 make ten minutes.
    let first = "document.getElementById('error-chart').chart.lines[0].x[0]";
    assert!(browser.eval(first).as_u64() < Some(10));
    browser.eval("document.querySelector('input[value=recent]').click()");
    browser.wait(&format!("{first} > 2900"));
    browser.eval("document.querySelector('input[value=whole]').click()");
    browser.wait(&format!("{first} < 10"));
    // With a mouse: values at the pointer, zoom by dragging, all of it again by a double click.
    browser.eval("document.getElementById('error-chart').scrollIntoView()");
    let part = "document.getElementById('error-chart').getBoundingClientRect()";
    let place = browser.eval(&format!("[{part}.left, {part}.top, {part}.width]"));
    let [left, top, width] = [0, 1, 2].map(|index| place[index].as_f64().unwrap());
    let (from, to, y) = (left + 0.4 * width, left + 0.6 * width, top + 100.0);
    browser.mouse("mouseMoved", from, y, 0);
    browser
        .wait("document.querySelector('#error-chart .readout').textContent.includes('lately: 0.')");
    browser.mouse("mousePressed", from, y, 1);
    browser.mouse("mouseMoved", to, y, 0);
    browser.mouse("mouseReleased", to, y, 1);
    let range = "document.getElementById('error-chart').chart.x.range";
    browser.wait(&format!("{range}[0] > 3000 && {range}[1] < 13000"));
    for clicks in [1, 2] {
        browser.mouse("mousePressed", to, y, clicks);
        browser.mouse("mouseReleased", to, y, clicks);
    }
    browser.wait(&format!("{range}[0] < 10"));
    browser.mouse("mouseMoved", 1.0, 1.0, 0);
}

fn importance_has_bars_and_lines(browser: &mut Browser) {
    assert_eq!(browser.eval("document.getElementById('importance').hidden"), json!(false));
    let none = "document.getElementById('no-importance').checkVisibility()";
    assert_eq!(browser.eval(none), json!(false));
    assert_eq!(browser.text("importance-unit"), "mean squared error");
    let lines = browser.eval(
        "document.getElementById('importance-lines').chart.lines.map(({ name, y }) => [name, y.length])",
    );
    assert_eq!(lines.as_array().map(Vec::len), Some(5), "{lines}");
    assert_eq!(lines[0], json!(["outside temperature", 20]));
    // Two bars for each column; a dead one has lately about none.
    let boxes = browser.eval(
        "document.getElementById('importance-bars').chart.boxes.map(({ x, text }) => [text, x[1] - x[0]])",
    );
    let boxes = boxes.as_array().unwrap();
    assert_eq!(boxes.len(), 14);
    let wind: Vec<f64> = boxes
        .iter()
        .filter(|one| one[0].as_str().unwrap().starts_with("wind"))
        .map(|one| one[1].as_f64().unwrap())
        .collect();
    assert!(wind[0] > 0.03 && wind[1] < 0.02, "{wind:?}");
}

fn table_sorts_and_filters(browser: &mut Browser) {
    let sort = |browser: &mut Browser| {
        browser.eval("document.querySelectorAll('#nodes thead th')[4].getAttribute('aria-sort')")
    };
    browser.eval("document.querySelectorAll('#nodes thead button')[4].click()");
    assert_eq!(sort(browser), json!("ascending"));
    let cells = column(browser, ERROR);
    assert!(is_sorted(&cells, false), "{cells:?}");
    browser.eval("document.querySelectorAll('#nodes thead button')[4].focus()");
    browser.press("Enter", 13, "\r");
    assert_eq!(sort(browser), json!("descending"));
    browser.eval("for (let i = 0; i < 2; i += 1) document.getElementById('more').click()");
    let cells = column(browser, ERROR);
    assert_eq!(cells.len(), NODES as usize);
    assert!(is_sorted(&cells, true) && cells.ends_with(&["–".to_owned()]), "{cells:?}");
    assert_eq!(browser.eval("document.getElementById('more').checkVisibility()"), json!(false));

    browser.eval("document.getElementById('filter').focus()");
    browser.call("Input.insertText", json!({ "text": "sENSOR-01" }));
    assert_eq!(column(browser, 0).len(), 10);
    assert_eq!(browser.text("node-count"), "10 of 250 nodes");
    browser.eval(
        "const f = document.getElementById('filter'); f.value = ''; f.dispatchEvent(new Event('input'))",
    );
    assert_eq!(column(browser, 0).len(), NODES as usize);
}

/// As a screen reader reads it.
fn everything_has_a_name(browser: &mut Browser) {
    let tree = browser.call("Accessibility.getFullAXTree", json!({}));
    let nodes = tree["nodes"].as_array().unwrap();
    let mut heard = std::collections::BTreeMap::<&str, usize>::new();
    for node in nodes.iter().filter(|node| node["ignored"] == json!(false)) {
        let role = node["role"]["value"].as_str().unwrap_or("");
        if [
            "button",
            "radio",
            "searchbox",
            "progressbar",
            "image",
            "region",
            "columnheader",
            "link",
        ]
        .contains(&role)
        {
            let name = node["name"]["value"].as_str().unwrap_or("");
            assert!(!name.trim().is_empty(), "{role} without a name: {node}");
            assert!(role != "searchbox" || name == "Filter", "{name}");
            *heard.entry(role).or_default() += 1;
        }
    }
    let least = json!({ "button": 13, "radio": 4, "searchbox": 1, "progressbar": 1, "image": 4, "columnheader": 15 });
    for (role, least) in least.as_object().unwrap() {
        let count = heard.get(role.as_str()).copied().unwrap_or(0);
        assert!(count as u64 >= least.as_u64().unwrap(), "{role}: {count}");
    }
    assert_eq!(browser.eval("document.getElementById('connection').ariaLive"), json!("polite"));
}

fn dark_and_narrow(browser: &mut Browser) {
    let ink = "document.querySelector('#error-chart svg').getAttribute('fill')";
    assert_eq!(
        browser.eval("getComputedStyle(document.body).backgroundColor"),
        json!("rgb(246, 247, 248)")
    );
    assert_eq!(browser.eval(ink), json!("#1a1a1a"));
    browser.look(360, 740, "dark");
    assert_eq!(
        browser.eval("getComputedStyle(document.body).backgroundColor"),
        json!("rgb(19, 21, 25)")
    );
    browser.wait(&format!("{ink} === '#e8eaed'"));
    browser.wait(
        "[...document.querySelectorAll('.plot > svg')].every((svg) => svg.clientWidth < 340)",
    );
    assert_eq!(browser.eval("document.documentElement.scrollWidth"), json!(360));
    assert_eq!(browser.eval("document.getElementById('sideways').checkVisibility()"), json!(true));
    let narrowest = "Math.min(...[...document.querySelectorAll('.tiles > div, .plot')].map((part) => part.clientWidth))";
    assert!(browser.eval(narrowest).as_u64() > Some(140));
    let too_wide = browser.eval(
        "[...document.querySelectorAll('body *:not(.scroll *)')]
            .filter((part) => part.getBoundingClientRect().right > 361).map((part) => part.outerHTML.slice(0, 80))",
    );
    assert_eq!(too_wide, json!([]));
}

/// A page that stays open for weeks.
fn tracks_stay_small(browser: &mut Browser) {
    let told = browser.eval(
        "import('./track.js').then(({ Track }) => {
            const track = new Track();
            track.load(Array.from({ length: 2000 }, (_, i) => ({ round: 50 * i, at_ms: 50000 * i })));
            for (let i = 100001; i < 1000000; i += 1) track.add({ round: i, at_ms: 1000 * i });
            const gaps = track.whole.slice(1, -1).map((point, i) => point.round - track.whole[i].round);
            return { whole: track.whole.length, recent: track.recent.length, first: track.whole[0].round,
                last: track.whole.at(-1).round, step: track.step, narrowest: Math.min(...gaps), widest: Math.max(...gaps) };
        })",
    );
    let number = |name: &str| told[name].as_u64().unwrap();
    assert!((900..=2_000).contains(&number("whole")), "{told}");
    assert_eq!((number("first"), number("last"), number("recent")), (0, 999_999, 601), "{told}");
    assert!(
        number("narrowest") >= number("step") && number("widest") <= 2 * number("step"),
        "{told}"
    );

    let words = browser.eval(
        "import('./words.js').then(({ ago, bytes, count, number, span }) => [
            bytes(999), bytes(1000), bytes(99960), bytes(123456789), count(1234567), number(0.000012345), number(0.123456),
            number(null), span(999), span(61000), span(7200000), span(9e8), ago(500), ago(-5), ago(125000)])",
    );
    let expected: Value = json!([
        "999 B",
        "1.0 kB",
        "100 kB",
        "123 MB",
        "1,234,567",
        "1.234e-5",
        "0.1235",
        "–",
        "999 ms",
        "61 s",
        "2 h",
        "10 days",
        "now",
        "now",
        "2 min ago"
    ]);
    assert_eq!(words, expected);
}
