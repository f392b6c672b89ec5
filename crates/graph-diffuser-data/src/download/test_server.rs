//! Local HTTP server with scripted responses, for tests.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

/// Response to one connection.
pub(super) type Response = Box<dyn FnOnce(&mut TcpStream) + Send>;

pub(super) struct Server {
    pub(super) address: String,
    pub(super) requests: JoinHandle<Vec<String>>,
}

pub(super) fn serve(responses: Vec<Response>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let requests = std::thread::spawn(move || {
        let mut requests = Vec::new();
        for respond in responses {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut request = String::new();
            while reader.read_line(&mut request).unwrap() > 2 {}
            requests.push(request.to_lowercase());
            respond(&mut stream);
        }
        requests
    });
    Server { address, requests }
}

pub(super) fn reply(head: &str, body: &[u8]) -> Response {
    let bytes = [format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n").as_bytes(), body].concat();
    Box::new(move |stream| {
        // The client may have closed the connection.
        let _ = stream.write_all(&bytes);
    })
}

pub(super) fn complete(body: &[u8]) -> Response {
    reply(&format!("200 OK\r\nETag: \"one\"\r\nContent-Length: {}", body.len()), body)
}
