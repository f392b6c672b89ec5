//! Downloads from a server of a few lines that does as each test tells it.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use super::*;

/// Answers the n-th connection with the n-th of these.
type Answer = Box<dyn FnOnce(&mut TcpStream) + Send>;

struct Server {
    address: String,
    requests: JoinHandle<Vec<String>>,
}

fn serve(answers: Vec<Answer>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let requests = std::thread::spawn(move || {
        let mut requests = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut request = String::new();
            while reader.read_line(&mut request).unwrap() > 2 {}
            requests.push(request.to_lowercase());
            answer(&mut stream);
        }
        requests
    });
    Server { address, requests }
}

fn reply(head: &str, body: &[u8]) -> Answer {
    let bytes = [format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n").as_bytes(), body].concat();
    Box::new(move |stream| {
        // The client may have gone already.
        let _ = stream.write_all(&bytes);
    })
}

fn whole(body: &[u8]) -> Answer {
    reply(&format!("200 OK\r\nETag: \"one\"\r\nContent-Length: {}", body.len()), body)
}

/// The head promises all of it, the body is cut.
fn cut(body: &[u8], length: usize) -> Answer {
    reply(&format!("200 OK\r\nETag: \"one\"\r\nContent-Length: {}", body.len()), &body[..length])
}

const BODY: &[u8] = b"0,1\n1,2\n2,0\n";
const SUM: &str = "45828c0c9b531245c4d37e371dc6955b";

const QUICK: Fetcher =
    Fetcher { timeout: Duration::from_millis(400), retries: 2, pause: Duration::from_millis(1) };

struct Outcome {
    result: Result<PathBuf, FetchError>,
    directory: tempfile::TempDir,
    requests: Vec<String>,
    progress: Vec<DownloadProgress>,
}

impl Outcome {
    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn is_whole(&self) {
        let path = self.result.as_ref().expect("the download succeeds");
        assert_eq!(fs::read(path).unwrap(), BODY);
        assert_eq!(self.files(), ["edges.csv"]);
    }
}

fn fetch_with(answers: Vec<Answer>, md5: Option<&str>, max_bytes: u64) -> Outcome {
    let server = serve(answers);
    let directory = tempfile::tempdir().unwrap();
    let file = RemoteFile {
        address: &format!("{}/edges.csv?dl=1", server.address),
        file: "edges.csv",
        md5,
        bytes: None,
        max_bytes,
    };
    let mut progress = Vec::new();
    let result = QUICK
        .fetch(&file, directory.path(), &AtomicBool::new(false), &mut |now| progress.push(now));
    let requests = server.requests.join().unwrap();
    Outcome { result, directory, requests, progress }
}

fn fetch(answers: Vec<Answer>) -> Outcome {
    fetch_with(answers, Some(SUM), 1000)
}

#[test]
fn a_file_arrives_whole_and_is_not_asked_for_again() {
    let outcome = fetch(vec![whole(BODY)]);
    outcome.is_whole();
    assert_eq!(outcome.progress.last(), Some(&DownloadProgress { done: 12, total: Some(12) }));
    let file = RemoteFile {
        address: "http://127.0.0.1:1/",
        file: "edges.csv",
        md5: Some(SUM),
        bytes: None,
        max_bytes: 1,
    };
    QUICK.fetch(&file, outcome.directory.path(), &AtomicBool::new(false), &mut |_| {}).unwrap();
}

#[test]
fn a_cut_connection_is_gone_on_from() {
    let rest = reply(
        "206 Partial Content\r\nContent-Range: bytes 5-11/12\r\nContent-Length: 7",
        &BODY[5..],
    );
    let outcome = fetch(vec![cut(BODY, 5), rest]);
    outcome.is_whole();
    assert!(outcome.requests[1].contains("range: bytes=5-\r\n"), "{}", outcome.requests[1]);
    assert!(outcome.requests[1].contains("if-range: \"one\"\r\n"));
}

#[test]
fn a_later_run_goes_on_where_the_last_one_stopped() {
    let rest = reply(
        "206 Partial Content\r\nContent-Range: bytes 5-11/12\r\nContent-Length: 7",
        &BODY[5..],
    );
    let server = serve(vec![rest]);
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("edges.csv.part"), &BODY[..5]).unwrap();
    fs::write(directory.path().join("edges.csv.part.version"), "\"one\"").unwrap();
    let file = RemoteFile {
        address: &server.address,
        file: "edges.csv",
        md5: None,
        bytes: None,
        max_bytes: 99,
    };
    let path = QUICK.fetch(&file, directory.path(), &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert_eq!(fs::read(path).unwrap(), BODY);
    assert!(server.requests.join().unwrap()[0].contains("range: bytes=5-"));
}

#[test]
fn a_server_without_ranges_or_with_a_new_file_starts_again() {
    fetch(vec![cut(b"another file", 5), whole(BODY)]).is_whole();
    fetch(vec![
        cut(BODY, 5),
        reply("416 Range Not Satisfiable\r\nContent-Length: 0", b""),
        whole(BODY),
    ])
    .is_whole();
    let shifted =
        reply("206 Partial Content\r\nContent-Range: bytes 0-11/12\r\nContent-Length: 12", BODY);
    fetch(vec![cut(BODY, 5), shifted, whole(BODY)]).is_whole();
}

#[test]
fn without_a_version_and_a_sum_halves_are_not_joined() {
    let no_version = reply("200 OK\r\nContent-Length: 12", &BODY[..5]);
    let outcome = fetch_with(vec![no_version, whole(BODY)], None, 1000);
    outcome.is_whole();
    assert!(!outcome.requests[1].contains("range:"));
}

#[test]
fn a_wrong_sum_puts_the_file_aside() {
    let outcome = fetch(vec![whole(b"something else")]);
    let error = outcome.result.as_ref().unwrap_err();
    assert!(
        error.to_string().contains("not 45828c0c9b531245c4d37e371dc6955b; it was put aside"),
        "{error}"
    );
    assert_eq!(outcome.files(), ["edges.csv.bad"]);
}

#[test]
fn what_may_pass_is_tried_again_and_what_will_not_is_not() {
    let busy = || reply("503 Service Unavailable\r\nContent-Length: 0", b"");
    fetch(vec![busy(), busy(), whole(BODY)]).is_whole();
    let outcome = fetch(vec![busy(), busy(), busy()]);
    assert!(outcome.result.unwrap_err().to_string().ends_with("the server answers 503"));
    let outcome = fetch(vec![reply("404 Not Found\r\nContent-Length: 0", b"")]);
    assert!(matches!(outcome.result, Err(FetchError::Status { status: 404, .. })));
    assert!(outcome.files().is_empty());
}

#[test]
fn a_redirect_is_followed_and_a_web_page_is_not_taken() {
    let target = serve(vec![whole(BODY)]);
    let moved =
        reply(&format!("302 Found\r\nLocation: {}/real\r\nContent-Length: 0", target.address), b"");
    fetch(vec![moved]).is_whole();
    let page =
        reply("200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 6", b"<html>");
    assert!(matches!(fetch(vec![page]).result, Err(FetchError::WebPage { .. })));
}

#[test]
fn a_server_cannot_fill_the_disk() {
    let outcome = fetch_with(vec![whole(BODY)], None, 11);
    assert!(matches!(outcome.result, Err(FetchError::TooLarge { limit: 11, .. })));
    // Without a length the bytes themselves are counted.
    let endless = Box::new(|stream: &mut TcpStream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        while stream.write_all(&[0; 4096]).is_ok() {}
    });
    let outcome = fetch_with(vec![endless], None, 50_000);
    assert!(matches!(outcome.result, Err(FetchError::TooLarge { .. })));
    assert!(outcome.files().is_empty(), "{:?}", outcome.files());
}

#[test]
fn a_silent_server_is_given_up_and_gone_on_from() {
    let stalled: Answer = Box::new(|stream: &mut TcpStream| {
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\nETag: \"one\"\r\nContent-Length: 12\r\n\r\n0,1\n1");
        // Held open while the next connection is served.
        let held = stream.try_clone().unwrap();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(3));
            drop(held);
        });
    });
    let rest = reply(
        "206 Partial Content\r\nContent-Range: bytes 5-11/12\r\nContent-Length: 7",
        &BODY[5..],
    );
    fetch(vec![stalled, rest]).is_whole();
}

#[test]
fn without_a_network_the_hint_says_what_to_put_where() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("http://127.0.0.1:{port}/edges.csv");
    let file =
        RemoteFile { address: &address, file: "edges.csv", md5: None, bytes: None, max_bytes: 99 };
    let directory = tempfile::tempdir().unwrap();
    let error =
        QUICK.fetch(&file, directory.path(), &AtomicBool::new(false), &mut |_| {}).unwrap_err();
    let path = directory.path().join("edges.csv");
    assert_eq!(
        error.hint().unwrap(),
        format!("download {address} elsewhere and put it at `{}`", path.display())
    );
}

#[test]
fn a_download_can_be_stopped_and_has_one_writer() {
    let server = serve(vec![whole(BODY)]);
    let directory = tempfile::tempdir().unwrap();
    let file = RemoteFile {
        address: &server.address,
        file: "edges.csv",
        md5: None,
        bytes: None,
        max_bytes: 99,
    };
    let outcome = QUICK.fetch(&file, directory.path(), &AtomicBool::new(true), &mut |_| {});
    assert!(matches!(outcome, Err(FetchError::Cancelled)));
    let part = File::create(directory.path().join("edges.csv.part")).unwrap();
    part.lock().unwrap();
    let outcome = QUICK.fetch(&file, directory.path(), &AtomicBool::new(false), &mut |_| {});
    assert!(matches!(outcome, Err(FetchError::Busy { .. })));
}
