//! A headless Chromium, driven over the pipe of its `DevTools` protocol: JSON messages that end in a zero byte.

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A browser with one page.
pub(crate) struct Browser {
    process: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    sent: u64,
    session: Option<String>,
    /// Faults that the page or the browser complained of.
    faults: Vec<String>,
    _profile: TempDir,
}

/// The browser that `CHROMIUM` names, or one on the path.
fn find() -> Option<PathBuf> {
    if let Some(named) = env::var_os("CHROMIUM") {
        return Some(named.into());
    }
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    let path = env::var_os("PATH")?;
    let files =
        env::split_paths(&path).flat_map(|directory| names.map(|name| directory.join(name)));
    files.into_iter().find(|file| file.is_file())
}

impl Browser {
    /// Starts a browser, or says why there is none.
    pub(crate) fn start() -> Option<Self> {
        let Some(program) = find() else {
            eprintln!("skipped: no Chromium on the path; `CHROMIUM` can name one");
            return None;
        };
        let profile = tempfile::tempdir().expect("a temporary directory");
        // The browser takes its messages on the third and fourth channel; a shell puts our pipes there.
        let mut command = Command::new("sh");
        command
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1"])
            .arg(program);
        command.args([
            "--headless=new",
            "--remote-debugging-pipe",
            "--no-first-run",
            "--disable-gpu",
        ]);
        // Tests may run as root in a container, which has neither a sandbox nor much shared memory.
        command.args(["--no-sandbox", "--disable-dev-shm-usage", "--disable-extensions"]);
        command.args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ]);
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg("about:blank");
        let started =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut process = started.expect("a shell starts");
        let (input, output) =
            (process.stdin.take().expect("a pipe"), process.stdout.take().expect("a pipe"));
        let (send, messages) = mpsc::channel();
        std::thread::spawn(move || {
            for message in BufReader::new(output).split(0) {
                let Ok(message) = message else { return };
                let Ok(message) = serde_json::from_slice(&message) else { continue };
                if send.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            process,
            input,
            messages,
            sent: 0,
            session: None,
            faults: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached = browser.call(
            "Target.attachToTarget",
            json!({"targetId": target["targetId"], "flatten": true}),
        );
        browser.session = Some(attached["sessionId"].as_str().expect("a session").to_owned());
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser.resize(1280, 900);
        Some(browser)
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.sent += 1;
        let mut message = json!({"id": self.sent, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.input.write_all(&bytes).expect("the browser listens");
        loop {
            let message = self
                .messages
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|error| panic!("{method}: {error}"));
            if message["id"] == self.sent {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.gine_aggregate(&message);
        }
    }

    /// Keeps what is a fault: an exception, an error or warning on the console, something refused or not found.
    fn gine_aggregate(&mut self, message: &Value) {
        let parameters = &message["params"];
        let is_fault = match message["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => true,
            "Runtime.consoleAPICalled" => {
                ["error", "warning", "assert"].iter().any(|kind| parameters["type"] == *kind)
            }
            "Log.entryAdded" => {
                ["error", "warning"].iter().any(|level| parameters["entry"]["level"] == *level)
            }
            _ => false,
        };
        if is_fault {
            self.faults.push(parameters.to_string());
        }
    }

    /// Faults since the last time.
    pub(crate) fn faults(&mut self) -> Vec<String> {
        self.evaluate("0");
        std::mem::take(&mut self.faults)
    }

    pub(crate) fn open(&mut self, address: &str) {
        self.call("Page.navigate", json!({"url": address}));
        self.wait_for("document.readyState === 'complete'");
    }

    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        let mobile = width < 600;
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// The value of an expression in the page.
    #[track_caller]
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let question =
            json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", question);
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {}",
            answer["exceptionDetails"]
        );
        answer["result"]["value"].clone()
    }

    #[track_caller]
    pub(crate) fn text(&mut self, selector: &str) -> String {
        let found =
            self.evaluate(&format!("document.querySelector({}).textContent", json!(selector)));
        found.as_str().expect("a text").to_owned()
    }

    #[track_caller]
    pub(crate) fn wait_for(&mut self, expression: &str) {
        let start = Instant::now();
        while self.evaluate(&format!("Boolean({expression})")) != true {
            assert!(
                start.elapsed() < PATIENCE,
                "never came: {expression}; faults: {:?}",
                self.faults
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Moves the pointer over an element; its place.
    #[track_caller]
    pub(crate) fn hover(&mut self, selector: &str) -> [f64; 2] {
        let place = self.evaluate(&format!(
            "(() => {{ const element = document.querySelector({}); element.scrollIntoView({{block: 'center'}}); \
             const box = element.getBoundingClientRect(); \
             return [box.x + box.width / 2, box.y + box.height / 2]; }})()",
            json!(selector)
        ));
        let [x, y] = [0, 1]
            .map(|axis| place[axis].as_f64().unwrap_or_else(|| panic!("{selector} has no place")));
        self.call("Input.dispatchMouseEvent", json!({"type": "mouseMoved", "x": x, "y": y}));
        [x, y]
    }

    /// Clicks on the middle of an element, as a mouse does.
    #[track_caller]
    pub(crate) fn click(&mut self, selector: &str) {
        let [x, y] = self.hover(selector);
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Presses a key by its name, such as `ArrowRight`, or types a letter.
    pub(crate) fn press(&mut self, key: &str) {
        let mut event = json!({"type": "keyDown", "key": key});
        if key.chars().count() == 1 {
            event["text"] = json!(key);
        }
        self.call("Input.dispatchKeyEvent", event);
        self.call("Input.dispatchKeyEvent", json!({"type": "keyUp", "key": key}));
    }

    pub(crate) fn insert(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // All fail only for a browser that has ended already.
        self.session = None;
        let _ = self.input.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(3)
            && matches!(self.process.try_wait(), Ok(None))
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
