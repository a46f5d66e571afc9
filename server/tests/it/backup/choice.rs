//! Stores in which some backups are damaged: the others are listed, and one of them is chosen.

use std::fs;

use super::*;

/// Two backups, of which the older one ends with the first event of the newer one.
struct Two {
    place: Place,
    town: Town,
    backups: Backups,
    /// The names of the backups, the older one first.
    names: [String; 2],
    /// A moment that only the older one has.
    before: Moment,
    /// A moment that both have.
    in_both: Moment,
}

impl Two {
    async fn new() -> Self {
        let place = Place::new();
        let mut town = Town::new(open(&place.data()));
        town.settle(2).await;
        let mut backups = place.backups(&town.engine, BackupOptions { begin_every: Duration::ZERO, ..place.options() });
        back_up(&mut backups).unwrap();
        go_on(&mut town, 0).await;
        let before = Moment::of(&town);
        go_on(&mut town, 1).await;
        let in_both = Moment::of(&town);
        back_up(&mut backups).unwrap();
        let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        let names: Vec<String> = place.objects("backups").into_iter().map(name).collect();
        Self { place, town, backups, names: names.try_into().unwrap(), before, in_both }
    }

    fn manifest(&self, nth: usize) -> PathBuf {
        self.place.store().join("backups").join(&self.names[nth])
    }

    /// Returns an object of the snapshot of the newer backup.
    fn snapshot(&self) -> PathBuf {
        let manifest: serde_json::Value = serde_json::from_slice(&fs::read(self.manifest(1)).unwrap()).unwrap();
        self.place.store().join("objects").join(manifest["snapshot"][0]["sha256"].as_str().unwrap())
    }

    fn list(&self) -> Ran {
        tools::run(self.place.0.path(), &format!("restore --list --from file://{}", self.place.store().display()))
    }
}

/// Cuts a file short, as a disk that was full.
fn cut(file: &Path) {
    let bytes = fs::read(file).unwrap();
    fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
}

#[test]
fn a_damaged_manifest_is_named_and_other_backups_can_be_restored() {
    run(async {
        let mut two = Two::new().await;
        let objects = two.place.objects("objects");
        cut(&two.manifest(1));
        let listed = two.list();
        assert_eq!((listed.code, listed.out.lines().count()), (0, 1), "{}{}", listed.out, listed.err);
        assert!(listed.out.trim_end().ends_with(&format!(", backup {}", two.names[0])), "{}", listed.out);
        let warned = format!("backups/{} is damaged: ", two.names[1]);
        assert!(
            listed.err.starts_with("warning: the manifest file://") && listed.err.contains(&warned),
            "{}",
            listed.err
        );
        let event = two.before.event;
        let ran = two.place.restore("before", &format!("--to-sequence {event}"));
        assert!(ran.code == 0 && ran.err.contains(&warned), "{}", ran.err);
        two.before.check(&two.place.path("before")).await;
        let ran = two.place.restore("none", &format!("--backup {}", two.names[1]));
        assert!(ran.code == 1 && ran.err.contains("error: the manifest file://"), "{}", ran.err);
        // It may need any object, so nothing is removed. Nor is anything removed by the first run of another process.
        fs::write(two.place.store().join("objects").join("0".repeat(64)), "of an interrupted run").unwrap();
        two.backups = two.place.backups(&two.town.engine, two.place.options());
        let cause = back_up(&mut two.backups).unwrap_err();
        assert!(matches!(cause, BackupError::DamagedManifest { .. }), "{cause}");
        assert_eq!(two.place.objects("objects").len(), objects.len() + 1);
        cut(&two.manifest(0));
        let listed = two.list();
        assert!(listed.code == 1 && listed.err.contains("error: the manifest file://"), "{}", listed.err);
        two.town.engine.shutdown();
    });
}

#[test]
fn an_older_backup_can_be_chosen_by_name_if_the_newest_is_damaged() {
    run(async {
        let two = Two::new().await;
        let snapshot = two.snapshot();
        let mut bytes = fs::read(&snapshot).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&snapshot, bytes).unwrap();
        let to = format!("--to-sequence {}", two.in_both.event);
        let ran = two.place.restore("both", &to);
        assert!(ran.code == 1 && ran.err.contains("is damaged: its checksum is"), "{}", ran.err);
        assert!(ran.err.contains("restore another backup with --backup NAME"), "{}", ran.err);
        let listed = two.list();
        two.names.iter().for_each(|name| assert!(listed.out.contains(&format!(", backup {name}\n")), "{}", listed.out));
        let ran = two.place.restore("both", &format!("{to} --backup {}", two.names[0]));
        assert_eq!((ran.code, &*ran.err), (0, ""));
        two.in_both.check(&two.place.path("both")).await;
        let ran = two.place.restore("end", &format!("--backup {}", two.names[0]));
        assert!(ran.code == 0 && ran.out.contains(&format!("event:    {}\n", two.in_both.event)), "{}", ran.err);
        for (arguments, named) in [
            (
                format!("--backup {} --to-sequence {}", two.names[1], two.before.event),
                "cannot be restored from file://",
            ),
            ("--backup 1.json".to_owned(), "/backups/1.json; `tidewire restore --list` shows the names"),
        ] {
            let ran = two.place.restore("none", &arguments);
            assert!(ran.code == 1 && ran.err.contains(named), "{}", ran.err);
        }
        let ran = two.place.restore("none", "--list");
        assert!(
            ran.code == 2 && ran.err.contains("cannot be used with"),
            "a list of all is not what was asked for: {}",
            ran.err
        );
        two.town.engine.shutdown();
    });
}

#[test]
fn a_backup_that_lost_an_object_is_listed_as_incomplete() {
    run(async {
        let two = Two::new().await;
        let snapshot = two.snapshot();
        let incomplete =
            format!(", backup {}, incomplete: 1 of its objects are missing or have another size\n", two.names[1]);
        cut(&snapshot);
        let listed = two.list();
        assert!(listed.code == 0 && listed.out.contains(&incomplete), "{}", listed.out);
        fs::remove_file(&snapshot).unwrap();
        let listed = two.list();
        assert!(listed.code == 0 && listed.out.contains(&incomplete), "{}", listed.out);
        assert!(listed.out.contains(&format!(", backup {}\n", two.names[0])), "{}", listed.out);
        two.town.engine.shutdown();
    });
}

#[test]
fn a_directory_that_lost_its_snapshots_is_refused_and_both_causes_are_named() {
    run(async {
        let place = Place::new();
        let mut town = Town::new(open_in_segments(&place.data()));
        town.settle(2).await;
        town.engine.shutdown();
        let files = fs::read_dir(place.data()).unwrap().map(|file| file.unwrap().path());
        let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut files: Vec<PathBuf> = files.collect();
        files.sort();
        let journal: Vec<&PathBuf> = files.iter().filter(|file| name(file).ends_with(".log")).collect();
        fs::remove_file(journal[0]).unwrap();
        files.iter().filter(|file| name(file).ends_with(".tide")).for_each(|file| fs::remove_file(file).unwrap());
        let last = name(journal[1])["journal-".len()..][..20].parse::<u64>().unwrap() - 1;
        let ran =
            tools::run(place.0.path(), &format!("backup --data-dir data --to file://{}", place.store().display()));
        let causes =
            format!("restore the missing segment, or a snapshot of event {last} or later, or start with --repair");
        assert!(ran.code == 1 && ran.err.contains(&causes), "{}", ran.err);
    });
}
