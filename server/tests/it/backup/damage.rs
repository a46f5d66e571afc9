//! Stores that lost or changed objects, that are shared or full of something else.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidewire_server::backup::BackupError;
use tidewire_server::backup::figures::BackupFigures;
use tidewire_server::backup::run::Backups;

use super::{Moment, Place, back_up, go_on};
use crate::erasure::{Town, open, run};
use crate::tools::Ran;

/// Maximum bytes of a manifest.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// The objects of a backup by what they contain: each is in a field of the manifest.
fn objects_of(place: &Place, field: &str) -> Vec<PathBuf> {
    let manifest = place.objects("backups").pop().unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&fs::read(manifest).unwrap()).unwrap();
    let parts = match field {
        "journal" => manifest["journal"][0]["parts"].clone(),
        field => manifest[field].clone(),
    };
    let name = |part: &serde_json::Value| place.store().join("objects").join(part["sha256"].as_str().unwrap());
    parts.as_array().unwrap().iter().map(name).collect()
}

async fn backed_up(place: &Place) -> Town {
    let mut town = Town::new(open(&place.data()));
    town.settle(6).await;
    let mut backups = place.backups(&town.engine, place.options());
    back_up(&mut backups).unwrap();
    go_on(&mut town, 0).await;
    back_up(&mut backups).unwrap();
    town
}

#[track_caller]
fn refused(place: &Place, ran: &Ran, named: &[&str]) {
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", ran.err);
    named.iter().for_each(|part| assert!(ran.err.contains(part), "{part:?} is not in {}", ran.err));
    // Nothing is left that a server could start from, or that prevents the next attempt.
    let left: Vec<_> =
        fs::read_dir(place.path("into")).into_iter().flatten().map(|left| left.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "LOCK"), "{left:?}");
}

#[test]
fn a_missing_or_changed_object_is_named_and_the_restore_fails() {
    run(async {
        let place = Place::new();
        let town = backed_up(&place).await;
        for field in ["snapshot", "archive", "journal"] {
            let object = objects_of(&place, field).remove(0);
            let good = fs::read(&object).unwrap();
            let name = object.file_name().unwrap().to_str().unwrap();
            let changed = |change: &dyn Fn(&mut Vec<u8>)| {
                let mut bytes = good.clone();
                change(&mut bytes);
                fs::write(&object, bytes).unwrap();
                place.restore("into", "")
            };
            let middle = good.len() / 2;
            refused(
                &place,
                &changed(&|bytes| bytes[middle] ^= 1),
                &["the object file://", name, "is damaged: its checksum is"],
            );
            refused(
                &place,
                &changed(&|bytes| bytes.truncate(middle)),
                &[name, &format!("it has {middle} bytes instead of")],
            );
            refused(&place, &changed(&|bytes| bytes.push(0)), &[name, "is damaged: it has"]);
            fs::remove_file(&object).unwrap();
            refused(
                &place,
                &place.restore("into", ""),
                &["the object file://", name, "is missing; restore another backup"],
            );
            fs::write(&object, &good).unwrap();
        }
        let manifest = place.objects("backups").remove(0);
        let good = fs::read(&manifest).unwrap();
        for (bytes, named) in [
            (b"{".to_vec(), "is damaged: "),
            (
                String::from_utf8(good.clone()).unwrap().replace("\"format\":1", "\"format\":3").into_bytes(),
                "has format 3, and this version reads up to 2",
            ),
        ] {
            fs::write(&manifest, bytes).unwrap();
            refused(&place, &place.restore("into", ""), &[manifest.file_name().unwrap().to_str().unwrap(), named]);
        }
        // Refused by its size, so that it takes no memory.
        fs::File::create(&manifest).unwrap().set_len(MANIFEST_BYTES_MAX + 1).unwrap();
        let named = [manifest.file_name().unwrap().to_str().unwrap(), &format!("more than {MANIFEST_BYTES_MAX}")];
        refused(&place, &place.restore("into", ""), &named);
        fs::write(&manifest, &good).unwrap();
        let restored = place.restore("into", "");
        assert_eq!(restored.code, 0, "{}", restored.err);
        let moment = Moment::of(&town);
        town.engine.shutdown();
        moment.check(&place.path("into")).await;
    });
}

#[test]
fn a_restore_needs_an_empty_directory() {
    run(async {
        let place = Place::new();
        let town = backed_up(&place).await;
        fs::create_dir(place.path("into")).unwrap();
        fs::write(place.path("into").join("notes.txt"), "mine").unwrap();
        let ran = place.restore("into", "");
        assert_eq!(ran.code, 1);
        assert!(ran.err.contains("the directory into is not empty: it has notes.txt"), "{}", ran.err);
        let ran = place.restore("data", "");
        assert!(ran.code == 1 && ran.err.contains("the directory data is not empty"), "{}", ran.err);
        let ran = crate::tools::run(place.0.path(), "restore --from file:///nowhere/at/all --data-dir new");
        assert!(ran.code == 1 && ran.err.contains("cannot use the store file:///nowhere/at/all"), "{}", ran.err);
        assert!(ran.err.ends_with(": the directory does not exist\n"), "{}", ran.err);
        fs::create_dir(place.path("empty")).unwrap();
        let ran = crate::tools::run(
            place.0.path(),
            &format!("restore --from file://{} --data-dir new", place.path("empty").display()),
        );
        assert!(ran.code == 1 && ran.err.contains("has no complete backup"), "{}", ran.err);
        town.engine.shutdown();
    });
}

#[test]
fn a_store_of_another_data_directory_or_server_is_not_changed() {
    run(async {
        let place = Place::new();
        let mut town = backed_up(&place).await;
        let other = Town::new(open(&place.path("other")));
        let before = (place.objects("backups"), place.objects("objects"));
        let mut of_other = place.backups(&other.engine, place.options());
        let cause = back_up(&mut of_other).unwrap_err();
        assert!(matches!(cause, BackupError::OtherIdentity { .. }), "{cause}");
        assert_eq!((place.objects("backups"), place.objects("objects")), before);
        // A second process on a copy of the same directory.
        let mut backups = place.backups(&town.engine, place.options());
        back_up(&mut backups).unwrap();
        go_on(&mut town, 1).await;
        let theirs = place.store().join("backups").join("09999999999999999999-00000000000000000001.json");
        fs::copy(&before.0[0], &theirs).unwrap();
        for _ in 0..2 {
            let cause = back_up(&mut backups).unwrap_err();
            assert!(matches!(cause, BackupError::Shared { .. }), "{cause}");
        }
        fs::remove_file(theirs).unwrap();
        back_up(&mut backups).unwrap();
        [town, other].iter().for_each(|town| town.engine.shutdown());
    });
}

#[test]
fn leftovers_of_an_interrupted_run_are_removed_and_lost_parts_stored_again() {
    run(async {
        let place = Place::new();
        let town = backed_up(&place).await;
        let whole = place.objects("objects");
        // The uploads of a run that did not come to its manifest.
        let garbage = place.store().join("objects").join("0".repeat(64));
        fs::write(&garbage, "part of a snapshot").unwrap();
        let mut backups = place.backups(&town.engine, place.options());
        back_up(&mut backups).unwrap();
        assert_eq!(place.objects("objects"), whole);
        // A backup that has lost a part is not continued.
        fs::remove_file(&objects_of(&place, "archive")[0]).unwrap();
        let mut backups = place.backups(&town.engine, place.options());
        back_up(&mut backups).unwrap();
        assert_eq!(place.objects("backups").len(), 2);
        let restored = place.restore("into", "");
        assert_eq!(restored.code, 0, "{}", restored.err);
        let moment = Moment::of(&town);
        town.engine.shutdown();
        moment.check(&place.path("into")).await;
    });
}

#[test]
fn a_store_that_cannot_be_written_fails_the_run_and_the_next_one_succeeds() {
    run(async {
        let place = Place::new();
        let mut town = backed_up(&place).await;
        let figures = Arc::<BackupFigures>::default();
        let mut backups =
            Backups::new(town.engine.clone(), place.options(), Arc::clone(&figures), Arc::default()).unwrap();
        back_up(&mut backups).unwrap();
        go_on(&mut town, 1).await;
        // A file in place of the folder: also for a user who may write everywhere.
        fs::rename(place.store().join("objects"), place.path("aside")).unwrap();
        fs::write(place.store().join("objects"), "").unwrap();
        let cause = back_up(&mut backups).unwrap_err();
        assert!(cause.to_string().starts_with("cannot write file://"), "{cause}");
        assert_eq!(figures.failures.load(Ordering::Relaxed), 1);
        fs::remove_file(place.store().join("objects")).unwrap();
        fs::rename(place.path("aside"), place.store().join("objects")).unwrap();
        back_up(&mut backups).unwrap();
        let moment = Moment::of(&town);
        town.engine.shutdown();
        assert_eq!(place.restore("into", "").code, 0);
        moment.check(&place.path("into")).await;
    });
}
