//! Seeds of random tests: new ones in each run, those that failed before first.

use proptest::test_runner::{Config, FileFailurePersistence};
use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

/// The environment variable with the one seed that random tests use instead of new ones.
pub const SEED_VARIABLE: &str = "MULTIRAIL_TEST_SEED";

/// What the first line of a new file of kept seeds says.
const HEADER: &str =
    "# Seeds that made a random test fail: `TEST SEED`. They are run first each time. Commit this file.\n";

/// Calls `test` with each kept seed of this test, and then with `count` new ones.
///
/// A seed that makes `test` panic is appended to the file of kept seeds: the source file of the
/// caller with the extension `seeds`. The panic goes on and the seed is printed. With
/// [`SEED_VARIABLE`], its seed is the only one.
///
/// # Panics
///
/// When `test` panics, or when the environment variable is not a number.
#[track_caller]
pub fn for_seeds<F: FnMut(u64)>(count: usize, mut test: F) {
    let name = test_name::<F>();
    let file = source_file(Location::caller().file()).map(|source| source.with_extension("seeds"));
    for (seed, is_new) in seeds(count, name, file.as_deref()) {
        println!("{name}: seed {seed}");
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            eprintln!("{name} failed with seed {seed}; {SEED_VARIABLE}={seed} repeats it");
            if let (true, Some(file)) = (is_new, &file) {
                let kept = if keep(file, name, seed).is_ok() { "it is kept in" } else { "to keep it, add it to" };
                eprintln!("{kept} {}: {name} {seed}", file.display());
            }
            resume_unwind(panic);
        }
    }
}

/// The configuration of property tests in a `tests` folder: `cases` random cases, other ones in
/// each run.
///
/// The seed of a case that fails is kept beside the source file, with the extension
/// `proptest-regressions`. Property tests in `src` need no such configuration: proptest keeps
/// theirs in the folder `proptest-regressions` beside `src`.
pub fn proptest_config(cases: u32) -> Config {
    let persistence = FileFailurePersistence::WithSource("proptest-regressions");
    Config { cases, failure_persistence: Some(Box::new(persistence)), ..Config::default() }
}

/// The seeds to run with, and whether each is new, which means that nothing keeps it yet.
fn seeds(count: usize, name: &str, file: Option<&Path>) -> Vec<(u64, bool)> {
    if let Ok(given) = std::env::var(SEED_VARIABLE) {
        let seed = given.parse().unwrap_or_else(|_| panic!("{SEED_VARIABLE} is {given:?}, not a number below 2^64"));
        return vec![(seed, false)];
    }
    let kept = file.and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
    let kept = kept_seeds(&kept, name).into_iter().map(|seed| (seed, false));
    kept.chain((0..count).map(|_| (new_seed(), true))).collect()
}

/// The seeds of one test in the text of a file of kept seeds.
fn kept_seeds(text: &str, name: &str) -> Vec<u64> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let fields = lines.filter_map(|line| line.trim().split_once(' '));
    fields.filter(|(test, _)| *test == name).filter_map(|(_, seed)| seed.trim().parse().ok()).collect()
}

fn keep(file: &Path, name: &str, seed: u64) -> io::Result<()> {
    let header = if file.exists() { "" } else { HEADER };
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(format!("{header}{name} {seed}\n").as_bytes())
}

/// A number that differs from call to call: the standard library's random keys, hashed.
fn new_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The function that a closure is in, by the closure's type: `crate::module::function`.
fn test_name<F>() -> &'static str {
    std::any::type_name::<F>().trim_end_matches("::{{closure}}")
}

/// A source file by its path as the compiler has it, which is relative to the workspace. Tests run
/// in their package's folder, below it. None where the sources are not there, as with a test binary
/// on another machine.
fn source_file(path: &str) -> Option<PathBuf> {
    let folder = std::env::current_dir().ok()?;
    folder.ancestors().map(|folder| folder.join(path)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_seeds_are_those_of_the_test() {
        let text = "# a comment\na::b 7\na::c 8\n\na::b 18446744073709551615 # why\na::b x\n";
        assert_eq!(kept_seeds(text, "a::b"), [7, u64::MAX]);
        assert_eq!(kept_seeds(text, "a"), [0; 0]);
    }

    #[test]
    fn new_seeds_differ_and_failing_ones_are_kept() {
        let file = std::env::temp_dir().join(format!("multirail-testing-{}.seeds", std::process::id()));
        let _ = fs::remove_file(&file);
        let new: Vec<u64> = seeds(3, "a", Some(&file)).into_iter().map(|(seed, _)| seed).collect();
        assert!(new[0] != new[1] && new[1] != new[2], "{new:?}");
        keep(&file, "a", new[0]).unwrap();
        keep(&file, "a", new[1]).unwrap();
        assert!(fs::read_to_string(&file).unwrap().starts_with(HEADER));
        let again = seeds(1, "a", Some(&file));
        assert_eq!(again[..2], [(new[0], false), (new[1], false)]);
        assert!(again[2].1 && again.len() == 3);
        fs::remove_file(&file).unwrap();
    }

    #[test]
    fn a_failing_seed_ends_the_test_and_names_are_found() {
        let mut called = 0;
        for_seeds(3, |_| called += 1);
        assert_eq!(called, 3);
        fn name_of<F: FnMut(u64)>(_: F) -> &'static str {
            test_name::<F>()
        }
        let name = name_of(|_| ());
        assert!(name.ends_with("seeds::tests::a_failing_seed_ends_the_test_and_names_are_found"), "{name}");
        assert!(source_file(file!()).is_some());
    }
}
