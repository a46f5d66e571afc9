//! What strangers send: it holds nothing longer than its answer takes, and is answered without asking for more.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use testkit::eventually;
use tidewire::config::EngineConfig;
use tidewire::limits::UNREAD_BYTES_MAX;

use crate::access::tokens::{SERVER_KEY, access, bearer};
use crate::server::Server;

fn server() -> Server {
    Server::start(EngineConfig::default())
}

fn guarded() -> Server {
    Server::guarded(EngineConfig::default(), access())
}

fn connect(server: &Server) -> TcpStream {
    testkit::connect(server.address())
}

/// The next answer: its head, and its body if it says how long that is.
fn answer(socket: &mut TcpStream) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        let come = socket.read(&mut byte);
        assert!(matches!(come, Ok(1)), "{come:?} after {:?}", String::from_utf8_lossy(&read));
        read.push(byte[0]);
    }
    let head = String::from_utf8(read).unwrap();
    let length = head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    socket.read_exact(&mut body).unwrap();
    head + &String::from_utf8(body).unwrap()
}

fn post(headers: &str, body: &str) -> String {
    let head = "POST /v1/posts HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    format!("{head}{headers}\r\n{body}")
}

const POST: &str = r#"{"author":"ann","body":1}"#;

fn whole_post() -> String {
    post(&format!("Content-Length: {}\r\n", POST.len()), POST)
}

const GET: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[test]
fn the_rest_of_a_chunked_body_is_not_read_endlessly_after_the_answer() {
    let (open, closed) = (server(), guarded());
    let large = format!("19000\r\n{}\r\n", "x".repeat(0x19000));
    for (server, body, status) in [(&closed, "5\r\nabcde\r\n", 401), (&open, &large, 413)] {
        let mut socket = connect(server);
        socket.write_all(post("Transfer-Encoding: chunked\r\n", body).as_bytes()).unwrap();
        let answer = answer(&mut socket).to_lowercase();
        assert!(answer.starts_with(&format!("http/1.1 {status} ")), "{answer}");
        assert!(answer.contains("connection: close\r\n"), "{answer}");
        // Until the server has closed it, a part now and then.
        eventually(&format!("nothing is read any more after {status}"), || socket.write_all(b"1\r\nx\r\n").is_err());
    }
}

#[test]
fn little_of_a_body_is_read_after_the_answer() {
    const TAKEN_MAX: usize = UNREAD_BYTES_MAX + BUFFERED_BYTES_MAX;
    let server = guarded();
    let piece = vec![b'x'; 1 << 20];
    let part = [b"100000\r\n", &piece[..], b"\r\n"].concat();
    for (headers, bytes) in [("Transfer-Encoding: chunked\r\n", &part), ("Content-Length: 99999999999\r\n", &piece)] {
        let mut socket = connect(&server);
        socket.write_all(post(headers, "").as_bytes()).unwrap();
        assert!(answer(&mut socket).starts_with("HTTP/1.1 401 "));
        let mut taken = 0;
        while socket.write_all(bytes).is_ok() {
            taken += bytes.len();
            assert!(taken < TAKEN_MAX, "more than {taken} bytes were taken of {headers}");
        }
    }
}

/// The bytes that the server takes of `piece`, sent again and again until it closes the connection.
fn taken(socket: &mut TcpStream, piece: &[u8], most: usize) -> usize {
    let mut taken = 0;
    while socket.write_all(piece).is_ok() && taken <= most {
        taken += piece.len();
    }
    taken
}

/// What the systems of both ends keep of what was sent: Linux lets the buffer of a socket that is read fast grow to 32 MiB.
const BUFFERED_BYTES_MAX: usize = 48 << 20;

#[test]
fn little_is_read_after_a_refused_upgrade() {
    const TAKEN_MAX: usize = UNREAD_BYTES_MAX + BUFFERED_BYTES_MAX;
    let piece = vec![b'x'; 1 << 20];
    for (server, status) in [(server(), 400), (guarded(), 400)] {
        for upgrade in ["websocket", "WebSocket"] {
            let mut socket = connect(&server);
            let headers = format!("Connection: Upgrade\r\nUpgrade: {upgrade}\r\nContent-Length: 99999999999\r\n");
            socket.write_all(post(&headers, "").as_bytes()).unwrap();
            let answer = answer(&mut socket);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
            let taken = taken(&mut socket, &piece, 4 * TAKEN_MAX);
            assert!(taken < TAKEN_MAX, "{taken} bytes were taken");
        }
    }
}

#[test]
fn little_is_read_of_bytes_that_are_not_http() {
    let server = server();
    let piece = vec![b'x'; 1 << 20];
    for head in ["GET / HTTP/9.9\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", "x", "\0"] {
        let mut socket = connect(&server);
        socket.write_all(head.as_bytes()).unwrap();
        let taken = taken(&mut socket, &piece, 4 * BUFFERED_BYTES_MAX);
        assert!(taken < BUFFERED_BYTES_MAX, "{taken} bytes were taken after {head:?}");
    }
}

#[test]
fn a_chunked_body_with_excessive_overhead_is_refused() {
    let server = server();
    let large = vec![b'x'; 1 << 20];
    let lines = b"x: y\r\n".repeat(100_000);
    let parts = [b"1;", &[b'x'; 4_000][..], b"\r\n \r\n"].concat();
    for (what, begin, piece) in [
        ("an extension without end", "1;", &large),
        ("a size without end", "0", &vec![b'0'; 1 << 20]),
        ("white space behind a size", "1", &vec![b' '; 1 << 20]),
        ("a trailer without end", "0\r\nx: ", &large),
        ("trailers without end", "0\r\n", &lines),
        ("extensions of many parts", "", &parts),
    ] {
        let mut socket = connect(&server);
        socket.write_all(post("Transfer-Encoding: chunked\r\n", begin).as_bytes()).unwrap();
        let taken = taken(&mut socket, piece, 4 * BUFFERED_BYTES_MAX);
        assert!(taken < BUFFERED_BYTES_MAX, "{what}: {taken} bytes were taken");
    }
}

#[test]
fn chunk_extensions_and_trailers_are_accepted() {
    let server = server();
    let mut socket = connect(&server);
    let signed = format!(";chunk-signature={}", "a".repeat(64));
    for extension in ["", ";x=y", " ;x", &signed, &format!(";x=\"{}\"", "y".repeat(4_000))] {
        let trailers = format!("x-checksum: {}\r\ny: z\r\n", "c".repeat(4_000));
        let parts = format!("{:04x}{extension}\r\n{POST}\r\n0{extension}\r\n{trailers}\r\n", POST.len());
        socket.write_all(post("Transfer-Encoding: chunked\r\n", &parts).as_bytes()).unwrap();
        let answer = answer(&mut socket);
        assert!(answer.starts_with("HTTP/1.1 201 "), "{extension}: {answer}");
    }
}

#[test]
fn a_trailer_without_a_carriage_return_cannot_hide_a_request() {
    let server = server();
    let part = format!("{:x}\r\n{POST}\r\n0\r\n", POST.len());
    // For a proxy that takes a line feed for the end of a line, the body ends before the second request. That has a body of its own.
    let hidden = GET.replace("localhost", "localhost\r\nConnection: close");
    let second =
        format!("POST /v1/posts HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{hidden}", hidden.len());
    for trailers in ["x: y\n\r\n", "\n", "x: y\r\n\n", "x: y\n\n", "x\ny: z\r\n\r\n"] {
        for pieces in [1, 1_000] {
            let mut socket = connect(&server);
            let sent = post("Transfer-Encoding: chunked\r\n", &format!("{part}{trailers}{second}"));
            for piece in sent.as_bytes().chunks(sent.len().div_ceil(pieces)) {
                let _ = socket.write_all(piece);
            }
            let mut answers = String::new();
            let _ = socket.read_to_string(&mut answers);
            let statuses: Vec<_> = answers.matches("HTTP/1.1 ").collect();
            assert!(statuses.len() == 1 && answers.starts_with("HTTP/1.1 400 "), "{trailers:?}: {answers}");
        }
    }
}

#[test]
fn a_chunked_body_keeps_the_connection_for_the_next_request() {
    let server = server();
    let mut socket = connect(&server);
    for nth in 0..3 {
        let (first, second) = POST.split_at(7);
        let parts = format!("{:x}\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n", first.len(), second.len());
        socket.write_all(post("Transfer-Encoding: chunked\r\n", &parts).as_bytes()).unwrap();
        let answer = answer(&mut socket);
        assert!(answer.starts_with("HTTP/1.1 201 "), "the {nth}th: {answer}");
    }
}

#[test]
fn a_refused_request_receives_no_100_continue() {
    let server = guarded();
    let expecting = |credential: &str, length: usize| {
        let headers = format!("Authorization: {}\r\n", bearer(credential));
        post(&format!("{headers}Expect: 100-continue\r\nContent-Length: {length}\r\n"), "")
    };
    for (credential, length, status) in [("guess", POST.len(), 401), (SERVER_KEY, 1 << 30, 413)] {
        let mut socket = connect(&server);
        socket.write_all(expecting(credential, length).as_bytes()).unwrap();
        let answer = answer(&mut socket);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert_eq!(socket.read(&mut [0]).unwrap(), 0, "the connection ends: nobody reads the body");
    }
    let mut socket = connect(&server);
    for _ in 0..3 {
        socket.write_all(expecting(SERVER_KEY, POST.len()).as_bytes()).unwrap();
        assert_eq!(answer(&mut socket), "HTTP/1.1 100 Continue\r\n\r\n");
        socket.write_all(POST.as_bytes()).unwrap();
        let answer = answer(&mut socket);
        assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    }
}

#[test]
fn pipelined_writes_are_all_answered_on_their_connection() {
    const WRITES: usize = 40;
    let server = server();
    let mut socket = connect(&server);
    let body = json!({"author": "ann", "body": "x".repeat(9_000)}).to_string();
    let sent = post(&format!("Content-Length: {}\r\n", body.len()), &body).repeat(WRITES) + GET;
    let (mut sending, answered) = (socket.try_clone().unwrap(), Arc::<AtomicUsize>::default());
    let answers = Arc::clone(&answered);
    let sending = std::thread::spawn(move || {
        // In pieces that end within bodies, each of which comes after what was sent before it, but for one request.
        let length = (sent.len() - GET.len()) / WRITES;
        for (nth, piece) in sent.as_bytes().chunks(12_345).enumerate() {
            let before = (12_345 * nth / length).saturating_sub(1);
            eventually("what was sent is answered", || answers.load(Ordering::Relaxed) >= before);
            sending.write_all(piece).unwrap();
        }
    });
    for nth in 0..WRITES {
        let answer = answer(&mut socket);
        assert!(answer.starts_with("HTTP/1.1 201 "), "the {nth}th: {answer}");
        assert!(!answer.to_lowercase().contains("connection: close"), "the {nth}th: {answer}");
        answered.fetch_add(1, Ordering::Relaxed);
    }
    assert!(answer(&mut socket).starts_with("HTTP/1.1 200 "));
    sending.join().unwrap();
    assert_eq!(server.get("/v1/stats").json()["posts"], WRITES);
}

#[test]
fn a_client_that_offers_an_upgrade_keeps_its_connection() {
    let server = server();
    for offer in [
        // The client of Java 17.
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n",
        "Upgrade: h2c\r\nConnection: keep-alive, upgrade\r\n",
        // Proxies that are configured for WebSockets.
        "Connection: upgrade\r\n",
    ] {
        let mut socket = connect(&server);
        let sent = post(&format!("{offer}Content-Length: {}\r\n", POST.len()), POST);
        for nth in 0..50 {
            socket.write_all(sent.as_bytes()).unwrap();
            let answer = answer(&mut socket).to_lowercase();
            assert!(answer.starts_with("http/1.1 201 "), "the {nth}th: {answer}");
            assert!(!answer.contains("connection: "), "the {nth}th: {answer}");
        }
        let watched = "GET /v1/users/ann/events HTTP/1.1\r\nHost: localhost\r\n";
        socket.write_all(format!("{watched}{offer}\r\n").as_bytes()).unwrap();
        let head = answer(&mut socket).to_lowercase();
        assert!(head.contains("transfer-encoding: chunked") && !head.contains("connection: "), "{head}");
    }
    assert_eq!(server.get("/v1/stats").json()["posts"], 150);
}

#[test]
fn a_websocket_that_is_declined_ends_its_connection() {
    let server = server();
    for (path, status) in [("/v1/users/ann/live", "426"), ("/v1/users/ann/events", "200")] {
        let mut socket = connect(&server);
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        socket.write_all(request.as_bytes()).unwrap();
        let head = answer(&mut socket).to_lowercase();
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{path}: {head}");
        assert!(head.contains("connection: close") && !head.contains("transfer-encoding"), "{path}: {head}");
    }
}

#[test]
fn a_disconnect_behind_pipelined_requests_is_detected() {
    let server = server();
    let mut socket = connect(&server);
    let events = "GET /v1/users/ann/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    socket.write_all(format!("{events}{GET}").as_bytes()).unwrap();
    assert!(answer(&mut socket).starts_with("HTTP/1.1 200 "));
    let connections = || server.get("/v1/stats").json()["live"]["connections"].clone();
    assert_eq!(connections(), 1);
    socket.shutdown(Shutdown::Write).unwrap();
    eventually("the client is noticed to be gone", || connections() == 0);
}

/// All that is answered to a client that sends this and then closes its sending side.
fn answers_after_the_end(server: &Server, sent: &str) -> String {
    let mut socket = connect(server);
    socket.write_all(sent.as_bytes()).unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    let mut answers = String::new();
    socket.read_to_string(&mut answers).unwrap();
    answers
}

#[test]
fn a_client_that_closes_its_sending_side_receives_its_answers() {
    const REQUESTS: usize = 40;
    let server = server();
    for nth in 0..REQUESTS {
        let answer = answers_after_the_end(&server, &whole_post());
        assert!(answer.starts_with("HTTP/1.1 201 "), "the {nth}th: {answer}");
    }
    // Larger than what the systems of both ends take at once.
    let large = json!({"author": "bob", "body": "x".repeat(60_000)}).to_string();
    let large = post(&format!("Content-Length: {}\r\n", large.len()), &large);
    let answers = answers_after_the_end(&server, &large.repeat(REQUESTS));
    assert_eq!(answers.matches("HTTP/1.1 201 ").count(), REQUESTS, "requests that wait for others are answered too");
    let page = "GET /v1/users/bob/feed?limit=100 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answer = answers_after_the_end(&server, page);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.to_lowercase().contains(&format!("content-length: {}", body.len())), "{head}");
    assert_eq!(body.matches(&"x".repeat(60_000)).count(), REQUESTS);
    let upgrade =
        "GET /v1/users/ann/live HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    for (sent, answered) in [
        (post("Content-Length: 9\r\nExpect: 100-continue\r\n", "{}"), "HTTP/1.1 400 "),
        (post("Content-Length: 9\r\n", "{}"), "HTTP/1.1 400 "),
        (post("Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n"), "HTTP/1.1 400 "),
        (upgrade.to_owned(), "HTTP/1.1 426 "),
        (GET.replace("HTTP/1.1", "HTTP/1.0"), "HTTP/1.0 200 "),
        ("nonsense\r\n\r\n".to_owned(), "HTTP/1.1 400 "),
    ] {
        let answer = answers_after_the_end(&server, &sent);
        // It is sent or not, by whether the end has been read by then.
        let answer = answer.strip_prefix("HTTP/1.1 100 Continue\r\n\r\n").unwrap_or(&answer);
        assert!(answer.starts_with(answered), "{sent}: {answer}");
    }
    assert_eq!(answers_after_the_end(&server, "GET / HTTP/1.1\r\nHos"), "", "no request");
}

#[test]
fn an_event_stream_ends_after_its_client_closes_the_sending_side() {
    let events = "GET /v1/users/ann/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answers = answers_after_the_end(&server(), &format!("{events}{GET}"));
    let (stream, next) = answers.split_once("\r\n0\r\n\r\n").unwrap();
    assert!(stream.starts_with("HTTP/1.1 200 ") && stream.contains("\"recovered\""), "{stream}");
    assert!(next.starts_with("HTTP/1.1 200 "), "{next}");
}

#[test]
fn a_header_line_without_a_carriage_return_is_refused() {
    let server = server();
    for head in [
        "GET /healthz HTTP/1.1\nHost: localhost\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: localhost\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\n",
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nx: y\nz: a\r\n\r\n",
        "\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ] {
        for before in ["", GET] {
            let mut socket = connect(&server);
            socket.write_all(format!("{before}{head}").as_bytes()).unwrap();
            if !before.is_empty() {
                assert!(answer(&mut socket).starts_with("HTTP/1.1 200 "));
            }
            let answer = answer(&mut socket);
            assert!(answer.starts_with("HTTP/1.1 400 "), "{head:?}: {answer}");
        }
    }
}

#[test]
fn every_answer_forbids_content_sniffing() {
    let server = guarded();
    let key = bearer(SERVER_KEY);
    let as_server = [("authorization", &*key), ("content-type", "application/json")];
    for (method, path, status, body) in [
        ("GET", "/healthz", 200, ""),
        ("GET", "/readyz", 200, ""),
        ("GET", "/openapi.json", 200, ""),
        ("GET", "/docs", 200, ""),
        ("GET", "/v1/users/ann/feed", 200, ""),
        ("GET", "/metrics", 200, ""),
        ("POST", "/v1/posts", 201, POST),
        ("POST", "/v1/posts", 400, "nonsense"),
        ("GET", "/nowhere", 404, ""),
        ("PUT", "/healthz", 405, ""),
    ] {
        let answer = server.ask(method, path, &as_server[..if body.is_empty() { 1 } else { 2 }], body);
        assert_eq!((answer.status, answer.header("x-content-type-options")), (status, "nosniff"), "{method} {path}");
    }
    let refused = server.get("/v1/users/ann/feed");
    assert_eq!((refused.status, refused.header("x-content-type-options")), (401, "nosniff"));
    let mut socket = connect(&server);
    let expecting = post(&format!("Expect: 100-continue\r\nContent-Length: {}\r\n", POST.len()), "");
    socket.write_all(expecting.as_bytes()).unwrap();
    assert!(answer(&mut socket).to_lowercase().contains("x-content-type-options: nosniff\r\n"));
}

#[test]
fn a_head_received_byte_by_byte_is_one_request() {
    let server = server();
    let mut socket = connect(&server);
    for _ in 0..2 {
        for byte in whole_post().as_bytes() {
            socket.write_all(&[*byte]).unwrap();
        }
        assert!(answer(&mut socket).starts_with("HTTP/1.1 201 "));
    }
}
