//! Clients that send plain HTTP to the TLS port: they get an HTTP response, because they could not read a TLS alert.

use std::io;

use actix_web::ResponseError as _;
use actix_web::rt::net::TcpStream;
use actix_web::rt::time::timeout;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::http::problem::Problem;
use crate::http::upgrade::LINGER;
use tidewire::limits::UNREAD_BYTES_MAX;

/// The code of the answer.
pub(crate) const HTTPS_ONLY: &str = "https_only";

/// Returns true if the client begins with an HTTP method, which no TLS record does. Waits for the first byte.
pub(super) async fn is_spoken(socket: &TcpStream) -> bool {
    let mut first = [0];
    matches!(socket.peek(&mut first).await, Ok(1)) && first[0].is_ascii_alphabetic()
}

/// Answers such a client, and returns the reason why its connection ends.
pub(super) async fn refuse(mut socket: impl AsyncRead + AsyncWrite + Unpin) -> io::Error {
    let problem = Problem::bad(HTTPS_ONLY, "this port speaks HTTPS: begin the URL with https://");
    let (status, document) = (problem.status_code(), problem.entry().to_string());
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/problem+json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{document}",
        document.len()
    );
    let answered = timeout(LINGER, async {
        socket.write_all(answer.as_bytes()).await?;
        socket.shutdown().await?;
        // If a socket is closed with unread data, the system sends a reset and may discard the data written last.
        let mut rest = (&mut socket).take(UNREAD_BYTES_MAX as u64);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
    });
    match answered.await {
        Ok(Err(cause)) => cause,
        Ok(Ok(_)) | Err(_) => io::Error::new(io::ErrorKind::InvalidData, "HTTP in plain text on a port of TLS"),
    }
}
