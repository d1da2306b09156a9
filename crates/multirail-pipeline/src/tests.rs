//! Groups within this process.

use super::*;
use multirail_net::Config;
use proptest::prelude::*;
use std::sync::{Arc, Mutex};

type Bag = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

/// Writes buffers of these sizes; each copy writes a part.
fn source(sizes: Vec<usize>) -> impl Fn(&CopyInfo) -> Box<dyn Filter> + Send + Sync {
    move |_| {
        let sizes = sizes.clone();
        Box::new(move |io: &mut Io<'_>| {
            let (copy, copies) = (io.info().copy, io.info().copies);
            for (i, size) in sizes.iter().enumerate().skip(copy).step_by(copies) {
                let body: Vec<u8> = (0..*size).map(|b| (b + i) as u8).collect();
                io.write(0, i as u64, body)?;
            }
            Ok(())
        })
    }
}

impl Filter for Box<dyn Filter> {
    fn init(&mut self, unit: &UnitOfWork) -> Result<(), Failure> {
        (**self).init(unit)
    }

    fn finalize(&mut self) -> Result<(), Failure> {
        (**self).finalize()
    }

    fn process(&mut self, io: &mut Io<'_>) -> Result<(), Failure> {
        (**self).process(io)
    }
}

/// Adds 1 to every byte and passes it on.
fn plus_one(_: &CopyInfo) -> impl Filter + use<> {
    |io: &mut Io<'_>| {
        while let Some(mut received) = io.read()? {
            received.body.iter_mut().for_each(|b| *b = b.wrapping_add(1));
            io.write(0, received.tag, received.body)?;
        }
        Ok(())
    }
}

fn collect(bag: &Bag) -> impl Fn(&CopyInfo) -> Box<dyn Filter> + Send + Sync + use<> {
    let bag = bag.clone();
    move |_| {
        let bag = bag.clone();
        Box::new(move |io: &mut Io<'_>| {
            while let Some(received) = io.read()? {
                bag.lock().unwrap().push((received.tag, received.body.to_vec()));
            }
            Ok(())
        })
    }
}

fn sorted(bag: &Bag) -> Vec<(u64, Vec<u8>)> {
    let mut all = std::mem::take(&mut *bag.lock().unwrap());
    all.sort();
    all
}

fn options(schedule: Schedule, window: u32) -> StreamOptions {
    StreamOptions::default().schedule(schedule).window(window)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// The output is the one computed here, for any number of copies and several units of work in a
    /// row.
    #[test]
    fn the_output_is_right_for_any_number_of_copies(
        sizes in prop::collection::vec(0usize..3000, 0..60),
        copies in prop::collection::vec(1usize..5, 4),
        demand: bool,
        window in 1u32..5,
        units in 1u32..4,
    ) {
        let schedule = if demand { Schedule::DemandDriven } else { Schedule::RoundRobin };
        // Buffer i of a unit has bytes that count up from i, and two filters add 1 to each.
        let buffer = |i: usize| (0..sizes[i]).map(|b| ((b + i) % 256) as u8).map(|b| b.wrapping_add(2)).collect();
        let mut wanted: Vec<(u64, Vec<u8>)> =
            (0..units).flat_map(|_| (0..sizes.len()).map(|i| (i as u64, buffer(i)))).collect();
        wanted.sort();
        for copies in [vec![1; 4], copies] {
            let bag = Bag::default();
            let mut group = Group::new(Config::default());
            group.filter("source", source(sizes.clone())).copies(copies[0]);
            group.filter("one", plus_one).copies(copies[1]).stateless();
            group.filter("two", plus_one).copies(copies[2]);
            group.filter("sink", collect(&bag)).copies(copies[3]);
            for (from, to) in [("source", "one"), ("one", "two"), ("two", "sink")] {
                group.stream_with(from, to, options(schedule, window));
            }
            let mut running = group.start().unwrap();
            let begun: Vec<u32> = (0..units).map(|u| running.begin(&u.to_le_bytes())).collect();
            for unit in begun {
                running.wait(unit).unwrap();
            }
            prop_assert!(sorted(&bag) == wanted, "copies: {:?}", copies);
        }
    }
}

#[test]
fn a_failure_names_the_copy_and_the_next_unit_works() {
    for how in ["error", "panic", "leaves early"] {
        let bag = Bag::default();
        let mut group = Group::new(Config::default());
        group.filter("source", source(vec![1000; 500])).copies(2);
        group
            .filter("bad", move |place| {
                let copy = place.copy;
                move |io: &mut Io<'_>| -> Result<(), Failure> {
                    while let Some(received) = io.read()? {
                        if copy == 1 && io.unit().query == b"fail" {
                            match how {
                                "error" => return Err("no more ink".into()),
                                "panic" => panic!("no more ink"),
                                _ => return Ok(()),
                            }
                        }
                        io.write(0, received.tag, received.body)?;
                    }
                    Ok(())
                }
            })
            .copies(3);
        group.filter("sink", collect(&bag));
        group.stream("source", "bad").stream("bad", "sink");
        let mut running = group.start().unwrap();
        running.run(b"").unwrap();
        assert_eq!(sorted(&bag).len(), 500);
        let failed = running.run(b"fail");
        match how {
            "leaves early" => failed.unwrap(),
            _ => {
                let told = failed.unwrap_err().to_string();
                for part in ["unit of work 2", "copy 1", "\"bad\"", "host local", "no more ink"] {
                    assert!(told.contains(part), "{told}");
                }
            }
        }
        sorted(&bag);
        for _ in 0..3 {
            running.run(b"").unwrap();
            assert_eq!(sorted(&bag).len(), 500, "after {how}");
        }
    }
}

/// No filter takes what came before a failure for the whole, and a failure at the very end leaves
/// the streams in order.
#[test]
fn filters_after_a_failed_one_do_not_finish() {
    struct Sink(Bag);
    impl Filter for Sink {
        fn process(&mut self, io: &mut Io<'_>) -> Result<(), Failure> {
            while io.read()?.is_some() {}
            Ok(())
        }
        fn finalize(&mut self) -> Result<(), Failure> {
            self.0.lock().unwrap().push((0, vec![]));
            Ok(())
        }
    }
    struct Late;
    impl Filter for Late {
        fn process(&mut self, io: &mut Io<'_>) -> Result<(), Failure> {
            while let Some(received) = io.read()? {
                io.write(0, received.tag, received.body)?;
                if io.unit().query == b"early" {
                    return Err("no more ink".into());
                }
            }
            Ok(())
        }
        fn init(&mut self, unit: &UnitOfWork) -> Result<(), Failure> {
            if unit.query == b"first" { Err("no ink".into()) } else { Ok(()) }
        }
        fn finalize(&mut self) -> Result<(), Failure> {
            Err("no cap".into())
        }
    }
    let bag = Bag::default();
    let mut group = Group::new(Config::default());
    group.filter("source", source(vec![10; 20]));
    group.filter("late", |_| Late);
    let finished = bag.clone();
    group.filter("sink", move |_| Sink(finished.clone()));
    group.stream("source", "late").stream("late", "sink");
    let mut running = group.start().unwrap();
    for (query, told, finished) in [("early", "no more ink", 0), ("first", "no ink", 0), ("", "no cap", 1)].repeat(5) {
        let failed = running.run(query.as_bytes()).unwrap_err().to_string();
        assert!(failed.contains("\"late\"") && failed.contains(told), "{failed}");
        // In the last case, the sink may be aborted before it has finished.
        assert!(sorted(&bag).len() <= finished, "{query}");
    }
}

#[test]
fn a_slow_filter_holds_the_others_back() {
    let most = Arc::new(Mutex::new(0));
    let (written, read) = (Arc::new(Mutex::new(0i64)), Arc::new(Mutex::new(0i64)));
    let mut group = Group::new(Config::default());
    let (counts, ahead) = ((written.clone(), read.clone()), most.clone());
    group.filter("source", move |_| {
        let ((written, read), most) = (counts.clone(), ahead.clone());
        move |io: &mut Io<'_>| -> Result<(), Failure> {
            for i in 0..300 {
                io.write(0, i, vec![0; 100])?;
                *written.lock().unwrap() += 1;
                let ahead = *written.lock().unwrap() - *read.lock().unwrap();
                let mut most = most.lock().unwrap();
                *most = ahead.max(*most);
            }
            Ok(())
        }
    });
    group.filter("slow", move |_| {
        let read = read.clone();
        move |io: &mut Io<'_>| -> Result<(), Failure> {
            while io.read()?.is_some() {
                std::thread::sleep(std::time::Duration::from_micros(200));
                *read.lock().unwrap() += 1;
            }
            Ok(())
        }
    });
    group.stream_with("source", "slow", options(Schedule::DemandDriven, 3));
    group.start().unwrap().run(b"").unwrap();
    // Three buffers in the window, one in work, and one that is acknowledged and not yet counted.
    assert!(*most.lock().unwrap() <= 5, "{} ahead", most.lock().unwrap());
}

#[test]
fn streams_may_part_and_meet() {
    let bag = Bag::default();
    let mut group = Group::new(Config::default());
    group.filter("source", |_| {
        |io: &mut Io<'_>| -> Result<(), Failure> {
            for i in 0..100u64 {
                io.write((i % 2) as usize, i, vec![i as u8])?;
            }
            assert!(io.write(2, 0, vec![]).unwrap_err().to_string().contains("no output stream 2"));
            Ok(())
        }
    });
    group.filter("even", plus_one).copies(2);
    group.filter("odd", plus_one);
    group.filter("sink", collect(&bag));
    group.stream("source", "even").stream("source", "odd").stream("even", "sink").stream("odd", "sink");
    group.start().unwrap().run(b"").unwrap();
    assert_eq!(sorted(&bag), (0..100).map(|i| (i, vec![i as u8 + 1])).collect::<Vec<_>>());
}

#[test]
fn errors_of_a_group_are_reported() {
    let mut group = Group::new(Config::default());
    group.filter("a", plus_one);
    group.filter("b", plus_one).copies(0);
    group.stream("a", "b");
    assert!(group.start().unwrap_err().to_string().contains("\"b\" has 0 copies"));
    let mut group = Group::new(Config::default());
    group.filter("a", plus_one).on(&["mars"]);
    assert!(group.start().unwrap_err().to_string().contains("host \"mars\" is unknown; there are: local"));
    let mut group = Group::new(Config::default());
    group.filter("a", plus_one);
    group.stream("a", "c");
    assert!(group.start().unwrap_err().to_string().contains("filter \"c\" is unknown; there are: a"));
    let mut group = Group::new(Config::default());
    group.host("h", "127.0.0.1:1");
    group.filter_of_kind("a", "nonsense", serde_json::Value::Null, &Filters::none()).on(&["h"]);
    let told = group.start().unwrap_err().to_string();
    assert!(told.contains("host h cannot take part: cannot reach 127.0.0.1:1"), "{told}");
}
