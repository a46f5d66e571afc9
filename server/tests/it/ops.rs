//! What is under `ops/`: it asks for what there is, and is well formed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tidewire::clock::UnixMicros;
use tidewire::config::EngineConfig;
use tidewire_server::http::state::HttpState;

use crate::export;
use crate::server::Server;
use testkit::test_servers::program;

/// The names of metrics that a text mentions.
fn mentioned(text: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let words = text.split(|c: char| !is_name(c)).filter(|word| word.starts_with("tidewire_"));
    words.map(str::to_owned).collect()
}

fn file(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)).unwrap()
}

/// Each query of the dashboard and of the alerts with all that is told of it, by where it is.
fn queries() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&file("ops/grafana-dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = |panel: &Value| panel["targets"].as_array().unwrap().clone();
    let target = |panel: &Value, target: Value| {
        (panel["title"].to_string(), format!("{} {}", target["expr"], target["legendFormat"]))
    };
    let of_dashboard = panels.iter().flat_map(|panel| targets(panel).into_iter().map(|each| target(panel, each)));
    let alerts = file("ops/alerts.yml");
    let of_alerts = alerts.split("- alert: ").skip(1);
    // What its text names besides is for people to look at.
    let alert = |text: &str| {
        let expr = text.lines().find(|line| line.trim_start().starts_with("expr: ")).unwrap();
        let shown: String =
            text.split("{{").skip(1).map(|shown| format!("{{{{{}}}}}", shown.split('}').next().unwrap())).collect();
        (text.lines().next().unwrap().to_owned(), format!("{expr} {shown}"))
    };
    let all: Vec<_> = of_dashboard.chain(of_alerts.map(alert)).collect();
    assert!(all.len() > 40, "{all:?}");
    all
}

/// The labels that a query looks at or shows, with each of its metrics; not those that Prometheus adds.
fn labels(query: &str) -> Vec<(String, String)> {
    query.split(" or ").flat_map(labels_of_one).collect()
}

fn labels_of_one(query: &str) -> Vec<(String, String)> {
    let between = |from: &str, to: char| {
        query.split(from).skip(1).map(move |rest| rest.split(to).next().unwrap()).collect::<Vec<_>>()
    };
    let listed = between("by (", ')').into_iter().flat_map(|list| list.split(", "));
    let matched = query.split(['{', ',']).filter_map(|part| part.split_once(['=', '!'])).map(|(name, _)| name.trim());
    let shown = between("{{", '}').into_iter().map(|shown| shown.trim().trim_start_matches("$labels."));
    let is_own = |label: &&str| {
        !["instance", "job"].contains(label)
            && !label.is_empty()
            && label.chars().all(|c| c.is_ascii_lowercase() || c == '_')
    };
    let labels: BTreeSet<&str> = listed.chain(matched).chain(shown).filter(is_own).collect();
    let metrics = mentioned(query);
    metrics.iter().flat_map(|metric| labels.iter().map(|label| (metric.clone(), (*label).to_owned()))).collect()
}

/// Only nodes of a cluster have these metrics.
fn is_of_nodes(name: &str) -> bool {
    let begins = [
        "tidewire_passed_on",
        "tidewire_inside",
        "tidewire_cluster",
        "tidewire_archive_lag",
        "tidewire_archive_changes_due",
    ];
    begins.iter().any(|start| name.starts_with(start))
}

/// The metrics of a node whose cluster has an archive.
#[cfg(feature = "cluster")]
fn of_node_with_archive() -> String {
    use std::sync::Arc;
    use tidewire::cluster::{journal, record::ClusterId, state::ClusterState};
    use tidewire::engine::Joining;
    use tidewire::recovery::{RecoveryProgress, node::NoPeers};
    use tidewire::storage::archive::{MemoryArchive, RemoteArchive};
    let log = tidewire::storage::log::memory::MemoryLog::default();
    journal::bootstrap_log_with_archive(&log, 16, ClusterId(5)).unwrap();
    let (clock, session) = (Arc::new(tidewire::clock::SystemClock), journal::SESSION);
    let options = journal::NodeOptions { name: "a".parse().unwrap(), address: "http://a".to_owned(), session };
    let view = Arc::new(ClusterState::new(options.name.clone(), clock.clone(), session));
    let archive = Some(Arc::new(MemoryArchive::ordered()) as Arc<dyn RemoteArchive>);
    let (config, progress) = (Default::default(), &RecoveryProgress::default());
    let joining =
        Joining { config, log: &log, options, view, storage: None, archive, peers: &NoPeers, clock, progress };
    let (engine, _) = joining.run().unwrap();
    Server::serving(HttpState::from(engine.clone()), engine).get("/metrics").text
}

#[test]
fn the_dashboard_and_the_alerts_query_existing_metrics() {
    // A journal and a snapshot are told of only where there is a data directory, and an archive where it is read.
    let data = tempfile::tempdir().unwrap();
    let engine = export::open(data.path());
    let state = HttpState::from(engine.clone());
    // And backups are told of only where there are any.
    state.backups.begin(Duration::from_secs(60), UnixMicros(0));
    let server = Server::serving(state, engine);
    server.json("PUT", "/v1/users/ann/following/bob", &json!({}));
    server.post("/v1/posts?wait=delivered", &json!({"author": "bob", "body": 1}));
    server.get("/v1/users/ann/feed");
    assert_eq!(server.send("POST", "/v1/snapshots", None, "").status, 201);
    // Refusals are told of once there are any.
    assert_eq!(server.get("/v1/nothing").status, 404);
    let metrics = server.get("/metrics").text;
    let mut names = mentioned(&metrics);
    // A server alone has none of them.
    assert!(!names.iter().any(|name| is_of_nodes(name)), "{names:?}");
    #[cfg(feature = "cluster")]
    let of_nodes = crate::cluster::metrics() + &of_node_with_archive();
    #[cfg(not(feature = "cluster"))]
    let of_nodes = String::new();
    names.extend(mentioned(&of_nodes));
    for name in ["ops/grafana-dashboard.json", "ops/alerts.yml", "docs/operations.md"] {
        let asked = mentioned(&file(name));
        assert!(asked.len() > 5, "{name} asks for {asked:?}");
        let is_checked = |name: &&String| cfg!(feature = "cluster") || !is_of_nodes(name);
        let missing: Vec<_> = asked.difference(&names).filter(is_checked).collect();
        assert!(missing.is_empty(), "{name} asks for {missing:?}, which there are not");
    }
    for (what, text) in queries() {
        for (name, label) in labels(&text) {
            if is_of_nodes(&name) && cfg!(not(feature = "cluster")) {
                continue;
            }
            let told = metrics
                .lines()
                .chain(of_nodes.lines())
                .any(|line| line.starts_with(&name) && line.contains(&format!("{label}=\"")));
            assert!(told, "{what}: no {name} tells its {label}");
        }
    }
}

/// The series of a metric that an alert takes the rate of, such as `tidewire_x_total{code="y"}`.
fn rated(query: &str) -> impl Iterator<Item = &str> {
    let after = |word| query.split(word).skip(1).map(|rest| rest.split('[').next().unwrap());
    after("rate(").chain(after("increase("))
}

#[test]
fn series_of_alerts_exist_before_the_first_occurrence() {
    let server = Server::start(EngineConfig::default());
    // An operation is counted once it is used.
    server.get("/v1/users/ann/feed");
    let metrics = server.get("/metrics").text;
    let mut checked = 0;
    for (alert, query) in queries() {
        let is_alert = query.trim_start().starts_with("expr: ");
        for (name, wanted) in
            rated(&query).filter(|_| is_alert).map(|rated| rated.split_once('{').unwrap_or((rated, "")))
        {
            if name.ends_with("_bucket") || is_of_nodes(name) {
                continue;
            }
            let wanted = wanted.trim_end_matches('}');
            let is_there = metrics.lines().any(|line| {
                line.starts_with(name) && line[name.len()..].starts_with(['{', ' ']) && line.contains(wanted)
            });
            assert!(
                is_there,
                "{alert}: {name} has no series with {wanted} before the first increase, which Prometheus would not see"
            );
            checked += 1;
        }
    }
    assert!(checked > 8, "{checked} series");
}

/// What an alert says of the instance `a`.
fn fired(alert: &str, severity: &str) -> Value {
    let text = file("ops/alerts.yml");
    let text = text.split(&format!("- alert: {alert}\n")).nth(1).unwrap();
    let annotation = |name: &str| {
        let quoted = text.split(&format!("{name}: \"")).nth(1).unwrap().split('"').next().unwrap();
        quoted.replace("{{ $labels.instance }}", "a")
    };
    json!({
        "exp_labels": {"severity": severity, "instance": "a", "job": "tidewire"},
        "exp_annotations": {"summary": annotation("summary"), "action": annotation("action")},
    })
}

#[test]
#[ignore = "needs promtool"]
fn the_disk_full_alert_fires_at_the_first_refusals_and_without_writers() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("alerts.yml"), file("ops/alerts.yml")).unwrap();
    let of_a = |series: &str| series.replace('{', r#"{instance="a",job="tidewire","#);
    let refusals = of_a(r#"tidewire_http_refusals_total{code="disk_full"}"#);
    let refused = of_a(r#"tidewire_writes_refused{reason="disk_full"}"#);
    let [free, posts, graph] = ["disk_free", "posts", "graph"].map(|name| of_a(&format!("tidewire_{name}_bytes{{}}")));
    let full = fired("TidewireDiskFull", "page");
    let case = |series: &[(&str, &str)], alert: &str, minutes: u32, expected: &[Value]| {
        let series: Vec<_> =
            series.iter().map(|(series, values)| json!({"series": series, "values": values})).collect();
        let test = json!({"alertname": alert, "eval_time": format!("{minutes}m"), "exp_alerts": expected});
        json!({"interval": "1m", "input_series": series, "alert_rule_test": [test]})
    };
    let (both, fills) = ([(&*refusals, "0 0 7 7 7x9"), (&*refused, "0 0 1 1x9 0x5")], "TidewireDiskFills");
    let left = |free_bytes| [(&*free, free_bytes), (&*posts, "2000000000x9"), (&*graph, "1000000000x9")];
    let tests = json!({
        "rule_files": ["alerts.yml"],
        "evaluation_interval": "1m",
        "tests": [
            // Refusals that begin and end between two readings of the gauge.
            case(&[(&refusals, "0 0 7 7"), (&refused, "0x9")], "TidewireDiskFull", 3, std::slice::from_ref(&full)),
            case(&both, "TidewireDiskFull", 3, std::slice::from_ref(&full)),
            // Nobody has written for longer than the rate looks back.
            case(&both, "TidewireDiskFull", 10, std::slice::from_ref(&full)),
            case(&both, "TidewireDiskFull", 15, &[]),
            case(&left("3900000000x9"), fills, 7, &[fired(fills, "warn")]),
            case(&left("4100000000x9"), fills, 7, &[]),
        ],
    });
    fs::write(directory.path().join("tests.yml"), tests.to_string()).unwrap();
    let mut promtool = Command::new(program("promtool", "prometheus"));
    let tested = testkit::output(promtool.current_dir(directory.path()).args(["test", "rules", "tests.yml"]));
    let said = String::from_utf8_lossy(&tested.stdout) + String::from_utf8_lossy(&tested.stderr);
    assert!(tested.status.success(), "{said}");
}

/// The dashboard's queries as rules, with what Grafana fills in.
fn rules_of_the_dashboard() -> String {
    let dashboard: Value = serde_json::from_str(&file("ops/grafana-dashboard.json")).unwrap();
    let targets = dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let expressions = targets.map(|target| target["expr"].as_str().unwrap());
    let filled = expressions.map(|expr| expr.replace("$__rate_interval", "5m").replace("$job", ".*"));
    let rules: Vec<_> =
        filled.enumerate().map(|(nth, expr)| json!({"record": format!("dashboard:{nth}"), "expr": expr})).collect();
    json!({"groups": [{"name": "dashboard", "rules": rules}]}).to_string()
}

#[test]
#[ignore = "needs promtool"]
fn prometheus_accepts_the_alerts_and_the_queries_of_the_dashboard() {
    let directory = tempfile::tempdir().unwrap();
    for (name, rules) in [("alerts.yml", file("ops/alerts.yml")), ("dashboard.yml", rules_of_the_dashboard())] {
        let copy = directory.path().join(name);
        fs::write(&copy, &rules).unwrap();
        let mut promtool = Command::new(program("promtool", "prometheus"));
        let checked = testkit::output(promtool.args(["check", "rules", "--lint-fatal"]).arg(&copy));
        let said = String::from_utf8_lossy(&checked.stdout) + String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{name}: {said}");
        let found = rules.matches("expr").count();
        assert!(said.contains(&format!("SUCCESS: {found} rules found")), "{name}: {said}");
    }
}

/// A command of bash in the folder of the sources, and what it ended with.
fn bash(script: &str, arguments: &[&Path], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(program("bash", "bash"));
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).args(["-ec", script, "bash"]).args(arguments);
    let ended = testkit::output(command.env_remove("CARGO_HOME").envs(variables.iter().copied()));
    (ended.status.code(), String::from_utf8(ended.stderr).unwrap())
}

#[test]
#[ignore = "needs bash"]
fn a_program_with_build_paths_is_detected_for_any_home_directory() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    for (home, content, tells) in [
        ("/", "https://host/path", None),
        ("/", "/.cargo/bin", Some("/.cargo/")),
        ("/", "registry/src/host", Some("registry/src/")),
        ("/home/ann", "https://host/home/anna", None),
        ("/home/ann", "\0/home/ann/secret.rs", Some("/home/ann/")),
        ("/home/ann/", "\0/home/ann/secret.rs", Some("/home/ann/")),
    ] {
        fs::write(&program, content).unwrap();
        let check = ". scripts/release/lib.sh; names_no_folder_of_the_compilation \"$1\"";
        let expected = tells.map_or((Some(0), String::new()), |folder| {
            (Some(1), format!("error: the program reveals where it was compiled: {folder}\n"))
        });
        assert_eq!(bash(check, &[&program], &[("HOME", home)]), expected, "{content} with HOME={home}");
    }
}

#[test]
#[ignore = "needs bash"]
fn services_are_prevented_from_starting_only_during_package_installation() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let (policy, tool) = (directory.path().join("policy-rc.d"), directory.path().join("apt-get"));
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
    let variables = [("PATH", path.as_str()), ("POLICY_RC_D", policy.to_str().unwrap())];
    let install = || bash("scripts/install_without_services.sh redis || exit $?", &[], &variables).0;
    // In place of apt-get: it ends well if no service may start, or as it is told.
    for (then, code) in [("exit 0", 0), ("exit 100", 100), ("kill -TERM $PPID; sleep 0.1", 143)] {
        fs::write(&tool, format!("#!/bin/sh\n\"$POLICY_RC_D\"; [ $? = 101 ] || exit 9\n{then}\n")).unwrap();
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(install(), Some(code), "{then}");
        assert!(!policy.exists(), "{then}");
    }
    // One of somebody else stays as it is.
    fs::write(&tool, "#!/bin/sh\nexit 100\n").unwrap();
    fs::write(&policy, "of the administrator").unwrap();
    assert_eq!(install(), Some(100));
    assert_eq!(fs::read_to_string(&policy).unwrap(), "of the administrator");
}

#[test]
#[ignore = "needs systemd-analyze"]
fn the_systemd_unit_is_valid() {
    let directory = tempfile::tempdir().unwrap();
    // Of a program that is there.
    let unit = file("ops/tidewire.service").replace("/usr/local/bin/tidewire", env!("CARGO_BIN_EXE_tidewire"));
    let copy = directory.path().join("tidewire.service");
    fs::write(&copy, unit).unwrap();
    let systemd_analyze = program("systemd-analyze", "systemd");
    let verified = testkit::output(Command::new(&systemd_analyze).arg("verify").arg("--man=no").arg(&copy));
    let said = String::from_utf8_lossy(&verified.stderr);
    let complaints: Vec<&str> = said.lines().filter(|line| line.contains("tidewire.service")).collect();
    assert!(verified.status.success() && complaints.is_empty(), "{said}");
    // How exposed a service is, from 0 to 100. Without any restriction it is 96.
    let mut judge = Command::new(systemd_analyze);
    let judged = testkit::output(judge.args(["security", "--no-pager", "--offline=true", "--threshold=15"]).arg(&copy));
    assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stdout));
}

#[test]
fn documented_commands_install_all_files_named_by_the_systemd_unit() {
    let (unit, guide) = (file("ops/tidewire.service"), file("docs/operations.md"));
    let commands = guide.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let value = |name: &str| unit.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let program = value("ExecStart=").split(' ').next().unwrap();
    let documents = value("Documentation=").split(' ').map(|url| url.strip_prefix("file://").unwrap());
    for path in documents.chain([program]) {
        let (directory, name) = path.rsplit_once('/').unwrap();
        // Some command names the file, and the directory as its last word.
        let installs = |command: &str| {
            command.ends_with(&format!(" {directory}/")) && command.split([' ', '/']).any(|word| word == name)
        };
        assert!(commands.lines().any(installs), "no command installs {path}:\n{commands}");
    }
}
