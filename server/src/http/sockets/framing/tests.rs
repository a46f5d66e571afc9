//! Tests of framing, with requests in pieces of all sizes and with invalid data.
#![cfg(test)]

use super::*;

/// Returns the bytes that pass to the parser if each request is answered as soon as its head is complete and the input arrives in pieces
/// of this size. A bar marks the places where the next request is deferred.
fn passed(sent: &str, piece_bytes: usize) -> String {
    let (mut framing, mut passed, mut answered) = (Framing::default(), String::new(), 0);
    let mut kept: Vec<u8> = Vec::new();
    for piece in sent.as_bytes().chunks(piece_bytes) {
        kept.extend(piece);
        loop {
            let may_begin = framing.heads() == answered;
            let on = framing.pass(&mut kept, may_begin);
            passed.push_str(&String::from_utf8_lossy(&kept[..on]));
            kept.drain(..on);
            if kept.is_empty() {
                break;
            }
            assert!(on > 0 || !may_begin, "nothing goes on of {kept:?}");
            if framing.heads() > answered {
                answered = framing.heads();
                passed.push('|');
            }
        }
    }
    passed
}

fn check(requests: &[&str]) {
    let sent = requests.concat();
    for piece_bytes in [1, 2, 3, 7, 64, 1 << 20] {
        assert_eq!(passed(&sent, piece_bytes), requests.join("|"), "in pieces of {piece_bytes}");
    }
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn pipelined_requests_are_separated() {
    check(&[GET, GET, GET]);
    check(&["POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n\n\r\nab", GET]);
    check(&["POST / HTTP/1.1\r\ncontent-length:\t0 \r\n\r\n", GET]);
    check(&["POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n", GET]);
    check(&["POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx: y\r\n\r\n", GET, GET]);
    let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(1_000));
    check(&["\r\nGET / HTTP/1.1\r\n\r\n", &long, GET]);
}

#[test]
fn an_offered_upgrade_is_masked_in_pieces_of_any_length() {
    for (sent, seen) in [
        ("Connection: Upgrade, HTTP2-Settings", "Connection: Upgrad_, HTTP2-Settings"),
        ("CONNECTION:upgrade", "CONNECTION:upgrad_"),
        ("connection: keep-alive,upgrade\t", "connection: keep-alive,upgrad_\t"),
        ("connection: not-upgrade, upupgrade, x", "connection: not-upgrade, upupgrade, x"),
        ("connection: upgrad_", "connection: upgrad-"),
        ("Connection: upgrade,UPGRADE", "Connection: upgrad_,UPGRAD_"),
        ("Connection: upgrad", "Connection: upgrad"),
        ("Connection : upgrade", "Connection : upgrade"),
        ("Upgrade: upgrade", "Upgrade: upgrade"),
        ("X-Connection: upgrade", "X-Connection: upgrade"),
    ] {
        let long = format!("Connection: {}, upgrade", "x".repeat(500));
        for (sent, seen) in [(sent, seen), (&long, &*long.replace("upgrade", "upgrad_"))] {
            let request =
                |line: &str| format!("GET / HTTP/1.1\r\n{line}\r\nConnection: close\r\nContent-Length: 2\r\n\r\nup");
            for piece_bytes in [1, 2, 3, 7, 64, 1 << 20] {
                assert_eq!(passed(&request(sent), piece_bytes), request(seen), "in pieces of {piece_bytes}");
            }
        }
    }
}

#[test]
fn upgrades_and_invalid_requests_pass_unchanged() {
    for head in [
        "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000001\r\n",
    ] {
        check(&[&[head, GET, GET].concat()]);
    }
    let spaces = format!("POST / HTTP/1.1\r\nContent-Length: {}5\r\n\r\n", " ".repeat(LINE_BYTES_MAX));
    check(&[&[&spaces, GET, GET].concat()]);
}

#[test]
fn a_line_without_a_carriage_return_is_made_invalid() {
    for head in [
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        for piece_bytes in [1, 3, 100] {
            let passed = passed(head, piece_bytes);
            assert_eq!(passed.len(), head.len());
            assert_eq!(passed.matches('\0').count(), 1, "{passed:?}");
            assert_eq!(passed.replace('\0', "\n"), head);
        }
    }
    let long = format!("GET / HTTP/1.1\r\nx: {}\nHost: a\r\n\r\n", "y".repeat(1_000));
    assert!(passed(&long, 50).contains("y\0Host"));
    let in_body = "POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n\n\n";
    assert_eq!(passed(in_body, 5), in_body);
}

#[test]
fn a_trailer_without_a_carriage_return_is_made_invalid() {
    let head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
    for (trailers, expected) in [
        ("\n\r\n", "\r\0\n"),
        ("x: y\n\r\n", "x: y\r\0\n"),
        ("x: y\n\n", "x: y\r\0"),
        ("x: y\r\n\nGET", "x: y\r\n\r\0ET"),
    ] {
        for piece_bytes in [1, 3, 100] {
            let sent = [head, trailers].concat();
            assert_eq!(passed(&sent, piece_bytes), [head, expected].concat(), "in pieces of {piece_bytes}");
        }
    }
}

#[test]
fn the_overhead_of_a_chunked_body_is_limited() {
    let head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    let size = |bytes: usize| format!("1;{}\r\nx\r\n", "y".repeat(bytes + SIZE_LINE_BYTES - 4));
    let trailer = |bytes: usize| format!("0\r\n{}\r\n\r\n", "y".repeat(bytes - 4));
    let half = CHUNK_OVERHEAD_BYTES_MAX / 2;
    for (parts, over) in [
        ([size(half), size(half - 2), "0\r\n\r\n".to_owned()], [size(half), size(half - 1), "0\r\n\r\n".to_owned()]),
        ([size(half), String::new(), trailer(half)], [size(half), String::new(), trailer(half + 1)]),
    ] {
        for piece_bytes in [7, 1_000, 1 << 20] {
            let sent = head.to_owned() + &parts.concat();
            assert_eq!(passed(&(sent.clone() + &sent), piece_bytes), format!("{sent}|{sent}"), "each body has its own");
            let over = passed(&(head.to_owned() + &over.concat()), piece_bytes);
            assert!(over.contains("\r\0"), "in pieces of {piece_bytes}");
        }
    }
    let small = format!("{head}{}0\r\n\r\n", "1\r\nx\r\n".repeat(CHUNK_OVERHEAD_BYTES_MAX));
    assert_eq!(passed(&small, 1_000), small, "any number of small parts");
}

#[test]
fn a_chunked_request_with_an_upgrade_header_is_framed_as_chunked() {
    let head = "POST / HTTP/1.1\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked\r\n\r\n";
    let whole = format!("{head}3\r\nabc\r\n0\r\n\r\n");
    check(&[whole.as_str(), GET, GET]);
    let hides = format!("{head}0\r\nx: y\n\r\n{GET}");
    assert!(passed(&hides, 100).contains("\r\0"), "{:?}", passed(&hides, 100));
}

#[test]
fn a_chunk_size_with_too_many_leading_zeros_is_made_invalid() {
    for zeros in [LINE_BYTES_MAX - 2, LINE_BYTES_MAX, 2 * LINE_BYTES_MAX] {
        let sent = format!(
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{}5\r\nab\ncd\r\n0\r\n\r\n",
            "0".repeat(zeros)
        );
        for piece_bytes in [1, 3, 1_000] {
            assert!(passed(&sent, piece_bytes).contains("5\r\r\0"), "{zeros} zeros, {piece_bytes} bytes at once");
        }
    }
    check(&[
        &format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{}5\r\nabcde\r\n0\r\n\r\n", "0".repeat(60)),
        GET,
    ]);
}
