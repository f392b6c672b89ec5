//! Headless Chromium, controlled over the pipe of its `DevTools` protocol: JSON messages that end
//! in a zero byte.

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Timeout of any operation on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A browser with one page.
pub(crate) struct Browser {
    process: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    sent: u64,
    session: Option<String>,
    /// Errors and warnings reported by the page or the browser.
    errors: Vec<String>,
    _profile: TempDir,
}

/// Returns the browser named by `CHROMIUM`, or one on the `PATH`.
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
    /// Starts a browser; prints a message and returns `None` if none is installed.
    pub(crate) fn start() -> Option<Self> {
        let Some(program) = find() else {
            eprintln!("skipped: Chromium not found; set CHROMIUM to its path");
            return None;
        };
        let profile = tempfile::tempdir().expect("a temporary directory");
        // The browser uses file descriptors 3 and 4; a shell redirects our pipes there.
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
        let mut process = started.expect("the shell starts");
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
            errors: Vec::new(),
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
        self.input.write_all(&bytes).expect("the browser is running");
        loop {
            let message = self
                .messages
                .recv_timeout(TIMEOUT)
                .unwrap_or_else(|error| panic!("{method}: {error}"));
            if message["id"] == self.sent {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.record_errors(&message);
        }
    }

    /// Records exceptions, console errors and warnings, and failed requests.
    fn record_errors(&mut self, message: &Value) {
        let parameters = &message["params"];
        let is_error = match message["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => true,
            "Runtime.consoleAPICalled" => {
                ["error", "warning", "assert"].iter().any(|kind| parameters["type"] == *kind)
            }
            "Log.entryAdded" => {
                ["error", "warning"].iter().any(|level| parameters["entry"]["level"] == *level)
            }
            _ => false,
        };
        if is_error {
            self.errors.push(parameters.to_string());
        }
    }

    /// Returns the errors since the last call.
    pub(crate) fn errors(&mut self) -> Vec<String> {
        self.evaluate("0");
        std::mem::take(&mut self.errors)
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

    /// Evaluates a JavaScript expression in the page.
    #[track_caller]
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let parameters =
            json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let response = self.call("Runtime.evaluate", parameters);
        assert!(
            response["exceptionDetails"].is_null(),
            "{expression}: {}",
            response["exceptionDetails"]
        );
        response["result"]["value"].clone()
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
            if start.elapsed() > TIMEOUT {
                let text = self.evaluate("document.body.innerText.slice(0, 500)");
                panic!("timeout: {expression}; errors: {:?}; page: {text}", self.errors);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Moves the pointer over an element; returns the coordinates of its center.
    #[track_caller]
    pub(crate) fn hover(&mut self, selector: &str) -> [f64; 2] {
        let center = self.evaluate(&format!(
            "(() => {{ const element = document.querySelector({}); element.scrollIntoView({{block: 'center'}}); \
             const box = element.getBoundingClientRect(); \
             return [box.x + box.width / 2, box.y + box.height / 2]; }})()",
            json!(selector)
        ));
        let [x, y] = [0, 1]
            .map(|axis| center[axis].as_f64().unwrap_or_else(|| panic!("{selector} has no box")));
        self.call("Input.dispatchMouseEvent", json!({"type": "mouseMoved", "x": x, "y": y}));
        [x, y]
    }

    /// Clicks on the center of an element.
    #[track_caller]
    pub(crate) fn click(&mut self, selector: &str) {
        let [x, y] = self.hover(selector);
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Turns the mouse wheel over the center of an element; a negative distance zooms in.
    #[track_caller]
    pub(crate) fn wheel(&mut self, selector: &str, distance: f64) {
        let [x, y] = self.hover(selector);
        let event = json!({"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": distance});
        self.call("Input.dispatchMouseEvent", event);
    }

    /// Drags from the center of an element.
    #[track_caller]
    pub(crate) fn drag(&mut self, selector: &str, [right, down]: [f64; 2]) {
        let [x, y] = self.hover(selector);
        let mut dispatch = |kind: &str, share: f64| {
            let event = json!({
                "type": kind, "x": x + share * right, "y": y + share * down, "button": "left",
                "buttons": 1, "clickCount": 1
            });
            self.call("Input.dispatchMouseEvent", event);
        };
        dispatch("mousePressed", 0.0);
        dispatch("mouseMoved", 0.5);
        dispatch("mouseMoved", 1.0);
        dispatch("mouseReleased", 1.0);
    }

    /// Spreads two fingers, or moves them together if `factor` is less than one, around the center
    /// of an element.
    #[track_caller]
    pub(crate) fn pinch(&mut self, selector: &str, factor: f64) {
        const STEPS: u32 = 8;
        let [x, y] = self.hover(selector);
        self.call(
            "Emulation.setTouchEmulationEnabled",
            json!({"enabled": true, "maxTouchPoints": 2}),
        );
        for step in 0..=STEPS {
            let distance = 30.0
                * factor
                    .max(1.0)
                    .mul_add(f64::from(step), (1.0 / factor).max(1.0) * f64::from(STEPS - step))
                / f64::from(STEPS);
            let finger = |id: u32, side: f64| json!({"x": x + side * distance, "y": y, "id": id});
            let kind = if step == 0 { "touchStart" } else { "touchMove" };
            let fingers = [finger(0, -1.0), finger(1, 1.0)];
            self.call("Input.dispatchTouchEvent", json!({"type": kind, "touchPoints": fingers}));
        }
        self.call("Input.dispatchTouchEvent", json!({"type": "touchEnd", "touchPoints": []}));
        self.call("Emulation.setTouchEmulationEnabled", json!({"enabled": false}));
    }

    /// Emulates a system with a dark theme.
    pub(crate) fn use_dark_theme(&mut self) {
        let dark = json!([{"name": "prefers-color-scheme", "value": "dark"}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": dark}));
    }

    /// Emulates a printer.
    pub(crate) fn use_print_media(&mut self) {
        self.call("Emulation.setEmulatedMedia", json!({"media": "print"}));
    }

    /// Returns the accessibility violations that axe finds, if `AXE` is the path of its script.
    pub(crate) fn violations(&mut self) -> Vec<String> {
        let Some(script) = env::var_os("AXE") else {
            eprintln!("accessibility not checked: set AXE to the path of axe.min.js");
            return vec![];
        };
        let script = std::fs::read_to_string(script).expect("AXE is a readable file");
        self.call("Runtime.evaluate", json!({"expression": script}));
        let found = self.evaluate(
            "axe.run().then((result) => result.violations.map(({ id, nodes }) => \
             `${id}: ${nodes.map((node) => node.html).join(', ')}`))",
        );
        serde_json::from_value(found).expect("a list of violations")
    }

    /// Saves a screenshot to the directory `EXPLORE_SCREENSHOTS`, if that is set.
    pub(crate) fn screenshot(&mut self, name: &str) {
        let Some(directory) = env::var_os("EXPLORE_SCREENSHOTS") else { return };
        let image = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let decoded =
            self.evaluate(&format!("[...atob({})].map((c) => c.charCodeAt(0))", image["data"]));
        let bytes: Vec<u8> = decoded
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|byte| byte.as_u64().map(|byte| byte as u8))
            .collect();
        let file = PathBuf::from(directory).join(format!("{name}.png"));
        std::fs::write(file, bytes).expect("the directory is writable");
    }

    /// Presses a key by its name, such as `ArrowRight`, or types a letter.
    pub(crate) fn press(&mut self, key: &str) {
        let mut event = json!({"type": "keyDown", "key": key});
        if key.chars().count() == 1 {
            event["text"] = json!(key);
        } else if key == "Enter" {
            event["text"] = json!("\r");
            event["windowsVirtualKeyCode"] = json!(13);
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
        // All fail only if the browser has already exited.
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
