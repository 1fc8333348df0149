//! A headless browser, controlled by DevTools messages through a pipe, without a driver or a
//! library.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::PATIENCE;

pub(crate) struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    session: Option<String>,
    commands_sent: u64,
    /// Errors, warnings and exceptions of the page.
    pub(crate) complaints: Vec<String>,
    /// Addresses that were asked for.
    pub(crate) requests: BTreeSet<String>,
    _profile: TempDir,
}

/// Debian's chromium. Prints a message and returns `None` if it is missing.
fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders =
        std::env::split_paths(&path).chain([PathBuf::from("/usr/bin")]).collect::<Vec<_>>();
    let found =
        folders.into_iter().map(|folder| folder.join("chromium")).find(|file| file.is_file());
    if found.is_none() {
        eprintln!("skipped: there is no chromium (apt-get install chromium)");
    }
    found
}

impl Browser {
    /// With one empty page.
    pub(crate) fn start() -> Option<Self> {
        let program = chromium()?;
        let profile = TempDir::new().unwrap();
        // The browser reads commands from file 3 and answers on file 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh"])
            .arg(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ])
            .args(["--remote-debugging-pipe", "about:blank"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let (sender, messages) = mpsc::channel();
        std::thread::spawn(move || {
            for message in answers.split(0) {
                let Ok(message) = message else { return };
                if sender.send(serde_json::from_slice(&message).unwrap_or_default()).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            child,
            commands,
            messages,
            session: None,
            commands_sent: 0,
            complaints: Vec::new(),
            requests: BTreeSet::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attached = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attached);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network", "Accessibility"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.commands_sent += 1;
        let id = self.commands_sent;
        let mut command = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        self.commands.write_all(command.to_string().as_bytes()).unwrap();
        self.commands.write_all(&[0]).unwrap();
        let begun = Instant::now();
        loop {
            let left = PATIENCE.saturating_sub(begun.elapsed());
            let message = self
                .messages
                .recv_timeout(left)
                .unwrap_or_else(|_| panic!("no answer to {method}"));
            if message["id"] == json!(id) {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.notice(&message);
        }
    }

    fn notice(&mut self, message: &Value) {
        let told = &message["params"];
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => {
                self.complaints.push(told["exceptionDetails"].to_string())
            }
            Some("Runtime.consoleAPICalled") => self.complaints.push(told["args"].to_string()),
            Some("Log.entryAdded") => self.complaints.push(told["entry"]["text"].to_string()),
            Some("Network.requestWillBeSent") => {
                self.requests.extend(told["request"]["url"].as_str().map(str::to_owned));
            }
            _ => (),
        }
    }

    pub(crate) fn open(&mut self, address: &str) {
        self.call("Page.navigate", json!({ "url": address }));
    }

    pub(crate) fn look(&mut self, width: u32, height: u32, scheme: &str) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let scheme = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": scheme }));
    }

    /// The value of an expression, after its promise has settled.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let wanted =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let result = self.call("Runtime.evaluate", wanted);
        assert!(
            result["exceptionDetails"].is_null(),
            "{expression}: {}",
            result["exceptionDetails"]
        );
        result["result"]["value"].clone()
    }

    pub(crate) fn text(&mut self, id: &str) -> String {
        self.eval(&format!("document.getElementById({id:?}).textContent"))
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Waits until an expression is true.
    pub(crate) fn wait(&mut self, expression: &str) {
        let begun = Instant::now();
        while self.eval(&format!("Boolean({expression})")) != json!(true) {
            assert!(
                begun.elapsed() < PATIENCE,
                "never: {expression}; complaints: {:?}",
                self.complaints
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn mouse(&mut self, kind: &str, x: f64, y: f64, clicks: u32) {
        let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": clicks });
        self.call("Input.dispatchMouseEvent", event);
    }

    /// A key with its usual effect.
    pub(crate) fn press(&mut self, key: &str, code: u32, text: &str) {
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let event = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text });
            self.call("Input.dispatchKeyEvent", event);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
