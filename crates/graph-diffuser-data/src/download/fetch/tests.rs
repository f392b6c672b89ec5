//! Downloads from a local HTTP server with scripted responses.

use std::net::{TcpListener, TcpStream};

use super::*;
use crate::download::test_server::{Response, complete, reply, serve};

/// Announces the full length but sends only the first `length` bytes.
fn truncated(body: &[u8], length: usize) -> Response {
    reply(&format!("200 OK\r\nETag: \"one\"\r\nContent-Length: {}", body.len()), &body[..length])
}

const BODY: &[u8] = b"0,1\n1,2\n2,0\n";
const MD5: &str = "45828c0c9b531245c4d37e371dc6955b";
const SHA256: &str = "d1c77ad38a3f0daeef6b12c6f529ddafb0e17a6b9389a98bb6b998bafac17d03";

const QUICK: Fetcher = Fetcher {
    timeout: Duration::from_millis(400),
    retries: 2,
    initial_backoff: Duration::from_millis(1),
};

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

    fn assert_complete(&self) {
        let path = self.result.as_ref().expect("the download succeeds");
        assert_eq!(fs::read(path).unwrap(), BODY);
        assert_eq!(self.files(), ["edges.csv"]);
    }
}

fn fetch_with(responses: Vec<Response>, md5: Option<&str>, max_bytes: u64) -> Outcome {
    let server = serve(responses);
    let directory = tempfile::tempdir().unwrap();
    let file = RemoteFile {
        url: &format!("{}/edges.csv?dl=1", server.address),
        file_name: "edges.csv",
        md5,
        sha256: None,
        bytes: None,
        max_bytes,
    };
    let mut progress = Vec::new();
    let result = QUICK
        .fetch(&file, directory.path(), &AtomicBool::new(false), &mut |now| progress.push(now));
    let requests = server.requests.join().unwrap();
    Outcome { result, directory, requests, progress }
}

fn fetch(responses: Vec<Response>) -> Outcome {
    fetch_with(responses, Some(MD5), 1000)
}

#[test]
fn existing_file_is_not_downloaded_again() {
    let outcome = fetch(vec![complete(BODY)]);
    outcome.assert_complete();
    assert_eq!(outcome.progress.last(), Some(&DownloadProgress { done: 12, total: Some(12) }));
    let file = RemoteFile {
        url: "http://127.0.0.1:1/",
        file_name: "edges.csv",
        md5: Some(MD5),
        sha256: None,
        bytes: None,
        max_bytes: 1,
    };
    QUICK.fetch(&file, outcome.directory.path(), &AtomicBool::new(false), &mut |_| {}).unwrap();
}

#[test]
fn sha256_is_verified_too() {
    let sum = "a77bcfcd0aab61ccbb8aad3a3a7f6ec09d8ab3a9b18ca5c6b2d5ef9fd5e9f1a0";
    let server = serve(vec![complete(BODY)]);
    let directory = tempfile::tempdir().unwrap();
    let file = RemoteFile {
        url: &format!("{}/edges.csv", server.address),
        file_name: "edges.csv",
        md5: Some(MD5),
        sha256: Some(sum),
        bytes: None,
        max_bytes: 99,
    };
    let fetched = QUICK.fetch(&file, directory.path(), &AtomicBool::new(false), &mut |_| {});
    let Err(FetchError::ChecksumMismatch { algorithm, found, .. }) = fetched else {
        panic!("{fetched:?}")
    };
    assert_eq!((algorithm, &*found), ("SHA-256", SHA256));
    fs::rename(directory.path().join("edges.csv.bad"), directory.path().join("edges.csv")).unwrap();
    let file = RemoteFile { sha256: Some(SHA256), ..file };
    QUICK.fetch(&file, directory.path(), &AtomicBool::new(false), &mut |_| {}).unwrap();
}

#[test]
fn broken_connection_is_resumed() {
    let rest = reply(
        "206 Partial Content\r\nContent-Range: bytes 5-11/12\r\nContent-Length: 7",
        &BODY[5..],
    );
    let outcome = fetch(vec![truncated(BODY, 5), rest]);
    outcome.assert_complete();
    assert!(outcome.requests[1].contains("range: bytes=5-\r\n"), "{}", outcome.requests[1]);
    assert!(outcome.requests[1].contains("if-range: \"one\"\r\n"));
}

#[test]
fn later_call_resumes_the_partial_file() {
    let rest = reply(
        "206 Partial Content\r\nContent-Range: bytes 5-11/12\r\nContent-Length: 7",
        &BODY[5..],
    );
    let server = serve(vec![rest]);
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("edges.csv.part"), &BODY[..5]).unwrap();
    fs::write(directory.path().join("edges.csv.part.version"), "\"one\"").unwrap();
    let file = RemoteFile {
        url: &server.address,
        file_name: "edges.csv",
        md5: None,
        sha256: None,
        bytes: None,
        max_bytes: 99,
    };
    let path = QUICK.fetch(&file, directory.path(), &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert_eq!(fs::read(path).unwrap(), BODY);
    assert!(server.requests.join().unwrap()[0].contains("range: bytes=5-"));
}

#[test]
fn download_restarts_without_range_support_or_if_the_file_changed() {
    fetch(vec![truncated(b"another file", 5), complete(BODY)]).assert_complete();
    fetch(vec![
        truncated(BODY, 5),
        reply("416 Range Not Satisfiable\r\nContent-Length: 0", b""),
        complete(BODY),
    ])
    .assert_complete();
    let shifted =
        reply("206 Partial Content\r\nContent-Range: bytes 0-11/12\r\nContent-Length: 12", BODY);
    fetch(vec![truncated(BODY, 5), shifted, complete(BODY)]).assert_complete();
}

#[test]
fn partial_file_without_version_and_checksum_is_not_resumed() {
    let no_version = reply("200 OK\r\nContent-Length: 12", &BODY[..5]);
    let outcome = fetch_with(vec![no_version, complete(BODY)], None, 1000);
    outcome.assert_complete();
    assert!(!outcome.requests[1].contains("range:"));
}

#[test]
fn file_with_wrong_checksum_is_renamed() {
    let outcome = fetch(vec![complete(b"something else")]);
    let error = outcome.result.as_ref().unwrap_err();
    assert!(error.to_string().ends_with(", expected 45828c0c9b531245c4d37e371dc6955b"), "{error}");
    assert_eq!(outcome.files(), ["edges.csv.bad"]);
}

#[test]
fn only_transient_failures_are_retried() {
    let busy = || reply("503 Service Unavailable\r\nContent-Length: 0", b"");
    fetch(vec![busy(), busy(), complete(BODY)]).assert_complete();
    let outcome = fetch(vec![busy(), busy(), busy()]);
    assert!(outcome.result.unwrap_err().to_string().ends_with("server returned HTTP status 503"));
    let outcome = fetch(vec![reply("404 Not Found\r\nContent-Length: 0", b"")]);
    assert!(matches!(outcome.result, Err(FetchError::Status { status: 404, .. })));
    assert!(outcome.files().is_empty());
}

#[test]
fn redirects_are_followed_and_web_pages_are_rejected() {
    let target = serve(vec![complete(BODY)]);
    let moved =
        reply(&format!("302 Found\r\nLocation: {}/real\r\nContent-Length: 0", target.address), b"");
    fetch(vec![moved]).assert_complete();
    let page =
        reply("200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 6", b"<html>");
    assert!(matches!(fetch(vec![page]).result, Err(FetchError::WebPage { .. })));
}

#[test]
fn downloads_beyond_the_size_limit_are_aborted() {
    let outcome = fetch_with(vec![complete(BODY)], None, 11);
    assert!(matches!(outcome.result, Err(FetchError::TooLarge { limit: 11, .. })));
    // Without a `Content-Length`, the received bytes are counted.
    let endless = Box::new(|stream: &mut TcpStream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        while stream.write_all(&[0; 4096]).is_ok() {}
    });
    let outcome = fetch_with(vec![endless], None, 50_000);
    assert!(matches!(outcome.result, Err(FetchError::TooLarge { .. })));
    assert!(outcome.files().is_empty(), "{:?}", outcome.files());
}

#[test]
fn stalled_download_times_out_and_is_resumed() {
    let stalled: Response = Box::new(|stream: &mut TcpStream| {
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\nETag: \"one\"\r\nContent-Length: 12\r\n\r\n0,1\n1");
        // Kept open while the next connection is served.
        let kept = stream.try_clone().unwrap();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(3));
            drop(kept);
        });
    });
    let rest = reply(
        "206 Partial Content\r\nContent-Range: bytes 5-11/12\r\nContent-Length: 7",
        &BODY[5..],
    );
    fetch(vec![stalled, rest]).assert_complete();
}

#[test]
fn hint_without_network_names_url_and_path() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}/edges.csv");
    let file = RemoteFile {
        url: &url,
        file_name: "edges.csv",
        md5: None,
        sha256: None,
        bytes: None,
        max_bytes: 99,
    };
    let directory = tempfile::tempdir().unwrap();
    let error =
        QUICK.fetch(&file, directory.path(), &AtomicBool::new(false), &mut |_| {}).unwrap_err();
    let path = directory.path().join("edges.csv");
    assert_eq!(
        error.hint().unwrap(),
        format!("download {url} manually and save it as `{}`", path.display())
    );
}

#[test]
fn download_can_be_canceled_and_is_locked() {
    let server = serve(vec![complete(BODY)]);
    let directory = tempfile::tempdir().unwrap();
    let file = RemoteFile {
        url: &server.address,
        file_name: "edges.csv",
        md5: None,
        sha256: None,
        bytes: None,
        max_bytes: 99,
    };
    let outcome = QUICK.fetch(&file, directory.path(), &AtomicBool::new(true), &mut |_| {});
    assert!(matches!(outcome, Err(FetchError::Canceled)));
    let part = File::create(directory.path().join("edges.csv.part")).unwrap();
    part.lock().unwrap();
    let outcome = QUICK.fetch(&file, directory.path(), &AtomicBool::new(false), &mut |_| {});
    assert!(matches!(outcome, Err(FetchError::Busy { .. })));
}
