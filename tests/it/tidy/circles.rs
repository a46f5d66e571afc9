//! Files do not import each other in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Attribute, File, ItemMod, ItemUse, UseTree};

use super::rust_files;

/// The path of a module in its crate.
type Module = Vec<String>;

/// The files that each file imports.
type Imports = BTreeMap<Module, BTreeSet<Module>>;

/// Collects the paths in a file, apart from its unit tests, as paths from the root of the crate.
struct Paths {
    /// The module that is being visited.
    within: Module,
    found: BTreeSet<Module>,
}

impl Paths {
    fn add(&mut self, segments: &[String]) {
        let Some((first, rest)) = segments.split_first() else { return };
        let mut path = match first.as_str() {
            "crate" => Vec::new(),
            "super" => self.within[..self.within.len().saturating_sub(1)].to_vec(),
            "self" => self.within.clone(),
            // Perhaps a module in this one.
            _ => [self.within.clone(), vec![first.clone()]].concat(),
        };
        for segment in rest {
            match segment.as_str() {
                "super" => drop(path.pop()),
                "self" => {}
                _ => path.push(segment.clone()),
            }
        }
        self.found.insert(path);
    }

    fn add_tree(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: String| [before, &[name]].concat();
        match tree {
            UseTree::Path(path) => self.add_tree(&with(path.ident.to_string()), &path.tree),
            UseTree::Name(name) => self.add(&with(name.ident.to_string())),
            UseTree::Rename(name) => self.add(&with(name.ident.to_string())),
            UseTree::Glob(_) => self.add(before),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(before, tree)),
        }
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Path>().is_ok_and(|of| of.is_ident("test"))
    })
}

impl<'a> Visit<'a> for Paths {
    fn visit_file(&mut self, file: &'a File) {
        if !is_for_tests(&file.attrs) {
            visit::visit_file(self, file);
        }
    }

    fn visit_item_mod(&mut self, module: &'a ItemMod) {
        if !is_for_tests(&module.attrs) {
            self.within.push(module.ident.to_string());
            visit::visit_item_mod(self, module);
            self.within.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.add_tree(&[], &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        self.add(&path.segments.iter().map(|segment| segment.ident.to_string()).collect::<Vec<_>>());
        visit::visit_path(self, path);
    }
}

/// Returns what each file of a crate imports of the others. A module and those inside it may know each other, and all may use the root of the crate.
fn imports(folder: &str) -> Imports {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let module = |path: &Path| -> Module {
        let inside = path.strip_prefix(&root).unwrap().with_extension("");
        let names: Module = inside.iter().map(|name| name.to_str().unwrap().to_owned()).collect();
        let is_of_folder = names.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str()));
        if is_of_folder { names[..names.len() - 1].to_vec() } else { names }
    };
    let files: BTreeMap<Module, String> = rust_files(folder)
        .into_iter()
        .map(|(path, text)| (module(&path), text))
        .filter(|(to, _)| !to.is_empty())
        .collect();
    let imported = |from: &Module, text: &str| -> BTreeSet<Module> {
        let mut paths = Paths { within: from.clone(), found: BTreeSet::new() };
        paths.visit_file(&syn::parse_file(text).unwrap());
        let file = |path: &Module| {
            (1..=path.len()).rev().map(|length| path[..length].to_vec()).find(|to| files.contains_key(to))
        };
        let is_other = |to: &Module| !from.starts_with(to);
        paths.found.iter().filter_map(file).filter(is_other).collect()
    };
    files.iter().map(|(from, text)| (from.clone(), imported(from, text))).collect()
}

/// Removes files that import none of the others, and those that none imports, until circles are left.
fn circles(mut imports: Imports) -> Imports {
    loop {
        let imported: BTreeSet<Module> = imports.values().flatten().cloned().collect();
        let before = imports.len();
        imports.retain(|file, others| !others.is_empty() && imported.contains(file));
        let left: BTreeSet<Module> = imports.keys().cloned().collect();
        imports.values_mut().for_each(|others| others.retain(|other| left.contains(other)));
        if imports.len() == before {
            return imports;
        }
    }
}

#[test]
fn file_imports_have_no_cycles() {
    for folder in ["src", "cassandra/src", "kafka/src", "server/src", "load/src", "testkit/src"] {
        let circles = circles(imports(folder));
        let lines = circles.iter().flat_map(|(from, others)| {
            others.iter().map(|to| format!("{folder}: {} imports {}", from.join("::"), to.join("::")))
        });
        let lines: Vec<String> = lines.collect();
        assert!(lines.is_empty(), "circles, and what lies between them:\n{}", lines.join("\n"));
    }
}

#[test]
fn only_files_of_an_import_cycle_are_reported() {
    let module = |name: &str| vec![name.to_owned()];
    let of = |names: &[&str]| names.iter().map(|name| module(name)).collect::<BTreeSet<_>>();
    let imports = Imports::from([
        (module("a"), of(&["b", "c"])),
        (module("b"), of(&["a"])),
        (module("c"), of(&[])),
        (module("d"), of(&["a"])),
    ]);
    assert_eq!(circles(imports), Imports::from([(module("a"), of(&["b"])), (module("b"), of(&["a"]))]));
}
