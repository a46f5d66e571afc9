//! Tests of the exact text of a report on a terminal.
#![cfg(test)]

use super::super::{TargetReport, sample};
use super::*;

fn at(width: usize) -> String {
    text(&sample::report(), Look { width, colour: false })
}

#[test]
fn the_sample_report_has_the_expected_text() {
    let expected = "\
Tidewire beside Redis and MariaDB
2026-11-21T14:00:00Z, Intel(R) Xeon(R) Processor, 2 cores, 25.0 GB, Linux 6.1.0

design                    Deliveries                      Feed pages                      Own pages
                   median        p50      p99      median        p50      p99      median        p50      p99
tidewire_http    6.28 M/s *   200 µs   599 µs    79.3 k/s *   190 µs   449 µs    92.1 k/s *   150 µs   303 µs
redis_list        268 k/s     1.2 ms   3.6 ms    13.2 k/s     1.1 ms   2.7 ms    15.3 k/s     901 µs   1.8 ms
redis_zset        181 k/s     1.5 ms   4.5 ms    10.6 k/s     1.4 ms   3.4 ms    12.3 k/s     1.1 ms   2.3 ms
mariadb_push     34.5 k/s    12.0 ms  35.9 ms    1.32 k/s    11.4 ms  27.0 ms    1.53 k/s     9.0 ms  18.2 ms
mariadb_pull            –          –        –       881/s    17.1 ms  40.4 ms    1.02 k/s    13.5 ms  27.3 ms

design             Mixed       Memory of an inbox
                   median                median
tidewire_http    61.0 k/s *              4.7 KB
redis_list       10.2 k/s               13.2 KB
redis_zset       8.13 k/s               31.0 KB
mariadb_push     1.02 k/s               22.4 KB
mariadb_pull        678/s                 610 B *

Mixed               feed page            publish              follow
                     p50      p99        p50      p99        p50      p99
tidewire_http     300 µs   1.0 ms     401 µs   2.2 ms     350 µs   1.4 ms
redis_list        1.8 ms   6.3 ms     2.4 ms  13.4 ms     2.1 ms   8.6 ms
redis_zset        2.3 ms   7.9 ms     3.0 ms  16.8 ms     2.6 ms  10.7 ms
mariadb_push     18.0 ms  62.9 ms    24.0 ms   134 ms    21.0 ms  85.9 ms
mariadb_pull     27.0 ms  94.4 ms    36.0 ms   201 ms    31.5 ms   129 ms

* the best of all
Measured once, not in rounds: Memory of an inbox.

Deliveries          Tidewire is 23.4x redis_list, 34.6x redis_zset, 182x mariadb_push
Feed pages          Tidewire is 6.0x redis_list, 7.5x redis_zset, 60.0x mariadb_push, 90.0x mariadb_pull
Own pages           Tidewire is 6.0x redis_list, 7.5x redis_zset, 60.0x mariadb_push, 90.0x mariadb_pull
Mixed               Tidewire is 6.0x redis_list, 7.5x redis_zset, 60.0x mariadb_push, 90.0x mariadb_pull
Memory of an inbox  redis_list takes 2.8x as much as Tidewire, redis_zset 6.6x, mariadb_push 4.8x, mariadb_pull 0.13x
The p99 of Tidewire's feed pages is equal to or better than that of redis_list, redis_zset, mariadb_push, mariadb_pull
(equal: within 5 %).

Left out: valkey_list  there is no program valkey-server

WARNING: these figures may be wrong.
  ! Noise, since rounds lie far apart; as a share of their median. Deliveries: mariadb_push 41 %.
  ! Too few samples behind a p99. Mixed: mariadb_pull follow (812).
";
    assert_eq!(at(120), expected);
}

#[test]
fn ratios_of_the_redis_protocol_follow_those_of_http() {
    let mut report = sample::report();
    let http = report.targets[0].clone();
    report.targets.push(TargetReport { name: "tidewire_resp".to_owned(), ..http });
    report.ratios = compare::ratios(&report.targets);
    let text = text(&report, Look { width: 200, colour: false });
    let expected = "\
Feed pages          Tidewire is 6.0x redis_list, 7.5x redis_zset, 60.0x mariadb_push, 90.0x mariadb_pull
Feed pages          Tidewire over the Redis protocol is 6.0x redis_list, 7.5x redis_zset, 60.0x mariadb_push, 90.0x mariadb_pull
";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for width in [48, 60, 80, 100, 200] {
        for line in at(width).lines() {
            assert!(length(line) <= width, "{} columns of {width}: {line}", length(line));
        }
    }
}

#[test]
fn columns_are_aligned() {
    let text = at(200);
    let rows: Vec<&str> = text.lines().filter(|line| line.contains(" k/s") && !line.contains("Tidewire is")).collect();
    let end_of_pages = |row: &str| row.find(" k/s").map(|at| row[..at].chars().count());
    assert!(rows.len() >= 4);
    assert_eq!(end_of_pages(rows[1]), end_of_pages(rows[2]));
}

#[test]
fn colours_do_not_change_the_text() {
    let coloured = text(&sample::report(), Look { width: 100, colour: true });
    assert!(coloured.contains("\x1b[1m"));
    let mut plain = coloured;
    for code in [BOLD, FAINT, WARNING, RESET] {
        plain = plain.replace(code, "");
    }
    let trimmed: String = plain.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
    assert_eq!(trimmed, at(100));
}

#[test]
fn a_report_without_warnings_says_so() {
    let mut report = sample::report();
    report.warnings.clear();
    let text = text(&report, Look::default());
    assert!(text.ends_with("\nNo check found a problem with these figures.\n"), "{text}");
}

#[test]
fn a_report_without_measured_designs_has_no_table() {
    let mut report = sample::report();
    let why = "there is no program redis-server".to_owned();
    report.targets =
        vec![TargetReport { name: "redis_list".to_owned(), left_out: Some(why), ..TargetReport::default() }];
    report.warnings.clear();
    let expected = "\
Tidewire beside Redis and MariaDB
2026-11-21T14:00:00Z, Intel(R) Xeon(R) Processor, 2 cores, 25.0 GB, Linux 6.1.0


Left out: redis_list  there is no program redis-server

No check found a problem with these figures.
";
    assert_eq!(text(&report, Look::default()), expected);
}

#[test]
fn external_text_cannot_contain_control_characters() {
    let mut report = sample::report();
    report.warnings = vec!["evil \x1b[2J text\r\nof two lines".to_owned()];
    let text = text(&report, Look::default());
    assert!(text.contains("  ! evil [2J text of two lines\n") && !text.contains('\x1b'), "{text}");
}

#[test]
fn text_is_wrapped_with_indentation_and_long_words_are_cut() {
    let expected = ["ab  one two three", "    four", "    aaaaaaaaaaaaaaaa", "    aaaa b"];
    assert_eq!(wrapped("ab  ", &format!("one two three four {} b", "a".repeat(20)), 20), expected);
}
