//! A persistent HTTP/1.1 connection with one request at a time. It uses so little processor time that the server dominates the measurement.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Maximum number of headers of a response.
const HEADERS_MAX: usize = 32;

/// Maximum bytes of a response.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A connection to the server.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
}

/// The status of a response and the positions of its body.
struct Head {
    status: u16,
    body: usize,
    end: usize,
}

impl Connection {
    /// Connects to the server.
    ///
    /// # Errors
    /// If the connection is refused.
    pub async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, answer: Vec::with_capacity(16 * 1024) })
    }

    /// Sends a raw request, and returns the status and the body of the response.
    ///
    /// # Errors
    /// If the connection fails, or the response is not supported by this client.
    pub async fn ask(&mut self, request: &[u8]) -> io::Result<(u16, &[u8])> {
        self.stream.write_all(request).await?;
        self.answer.clear();
        loop {
            let head = head(&self.answer)?;
            if let Some(Head { status, body, end }) = head
                && self.answer.len() >= end
            {
                return Ok((status, &self.answer[body..end]));
            }
            if self.stream.read_buf(&mut self.answer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// Parses the head of a response. Returns `None` if it is incomplete.
fn head(answer: &[u8]) -> io::Result<Option<Head>> {
    let strange = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("the answer has {what}"));
    if answer.is_empty() {
        return Ok(None);
    }
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let body = match response.parse(answer).map_err(|cause| strange(&format!("an invalid head: {cause}")))? {
        httparse::Status::Partial => return Ok(None),
        httparse::Status::Complete(body) => body,
    };
    let status = response.code.unwrap_or_default();
    let length = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length = match length {
        None if status == 204 => 0,
        None => return Err(strange("no length")),
        Some(length) => {
            std::str::from_utf8(length.value).ok().and_then(|length| length.parse().ok()).unwrap_or(usize::MAX)
        }
    };
    if length > ANSWER_BYTES_MAX {
        return Err(strange("a bad length"));
    }
    Ok(Some(Head { status, body, end: body + length }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;
    use tokio::runtime;

    fn answer_to_pieces(pieces: &'static [&'static str]) -> io::Result<(u16, String)> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let asked = async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut connection = Connection::open(listener.local_addr().unwrap()).await.unwrap();
            let (mut server, _) = listener.accept().await.unwrap();
            let serve = async move {
                for piece in pieces {
                    server.write_all(piece.as_bytes()).await.unwrap();
                    tokio::task::yield_now().await;
                }
                drop(server);
            };
            let (answer, ()) = tokio::join!(connection.ask(b"GET / HTTP/1.1\r\n\r\n"), serve);
            answer.map(|(status, body)| (status, String::from_utf8_lossy(body).into_owned()))
        };
        runtime.block_on(testkit::in_time("an answer", asked))
    }

    #[test]
    fn an_answer_is_read_from_several_pieces() {
        let pieces = &["HTTP/1.1 200 OK\r\nContent-Le", "ngth: 5\r\n", "\r\nab", "cde"];
        assert_eq!(answer_to_pieces(pieces).unwrap(), (200, "abcde".to_owned()));
        assert_eq!(answer_to_pieces(&["HTTP/1.1 204 No Content\r\n\r\n"]).unwrap(), (204, String::new()));
    }

    #[test]
    fn an_invalid_answer_is_an_error() {
        for pieces in [
            &["HTTP/1.1 200 OK\r\n\r\n"][..],
            &["HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n"],
            &["SSH-2.0\r\n\r\n"],
            &["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"],
            &[""],
        ] {
            assert!(answer_to_pieces(pieces).is_err(), "{pieces:?}");
        }
    }
}
