use super::*;
use proptest::prelude::*;

fn entry(name: &str, port: Option<u16>, cluster: Option<&str>, place: EntryPosition) -> Entry {
    Entry { name: name.to_owned(), port, cluster: cluster.map(str::to_owned), place }
}

#[test]
fn files() {
    let text = "# all of them\nNode1 cluster=a\n\n  node2:99\tcluster=b # far\n[fd00::1]:7\nfd00::2\n10.0.0.1\n";
    let expected = [
        entry("node1", None, Some("a"), EntryPosition::Line(2)),
        entry("node2", Some(99), Some("b"), EntryPosition::Line(4)),
        entry("fd00::1", Some(7), None, EntryPosition::Line(5)),
        entry("fd00::2", None, None, EntryPosition::Line(6)),
        entry("10.0.0.1", None, None, EntryPosition::Line(7)),
    ];
    let parsed = parse_file(text).unwrap();
    assert_eq!(parsed, expected);
    let addresses: Vec<_> = parsed.iter().map(Entry::address).collect();
    assert_eq!(addresses, ["node1:7717", "node2:99", "[fd00::1]:7", "[fd00::2]:7717", "10.0.0.1:7717"]);
}

#[test]
fn lists() {
    let parsed = parse_list("a,b:1 cluster=x,[::1]").unwrap();
    assert_eq!(parsed.iter().map(Entry::shown).collect::<Vec<_>>(), ["a", "b:1", "::1"]);
    assert_eq!(parsed[1].cluster.as_deref(), Some("x"));
    assert_eq!(parse_list("a,").unwrap().len(), 1, "a comma at the end is ignored");
}

#[test]
fn errors_say_where_and_what_to_do() {
    for (text, says) in [
        ("", "the list has no hosts"),
        ("# only a comment\n", "the list has no hosts"),
        ("a\nb:\n", "line 2: \"b:\" is not a host: a port is a number"),
        ("a:0", "a port is a number"),
        ("a:+7", "a port is a number"),
        ("a:65536", "a port is a number"),
        (":7", "the name is missing"),
        ("[fd00::1", "a bracket is not closed"),
        ("[node]:1", "must be an IPv6 address"),
        ("[::1]7", "only :PORT"),
        ("fd00::xyz", "with several colons"),
        ("-oProxyCommand=x", "does not begin with '-'"),
        ("a;rm", "a name has letters"),
        ("a weight=2", "line 1: \"weight=2\" is unknown"),
        ("a cluster=", "\"cluster=\" is unknown"),
        ("a cluster=x cluster=y", "\"cluster=y\" is unknown"),
        ("a\nb\nA", "line 3: a is in line 1 already"),
        ("a\na:7717", "line 2: a:7717 is in line 1 already"),
        ("fd00::1\n[fd00:0::1]:7717", "in line 1 already"),
    ] {
        let error = parse_file(text).unwrap_err().to_string();
        assert!(error.contains(says), "{text:?}: {error}");
    }
    assert!(parse_list("a,b,a").unwrap_err().to_string().contains("item 3: a is in item 1 already"));
    assert!(parse_list("a, ,b").unwrap_err().to_string().contains("item 2"));
}

#[test]
fn the_number_of_hosts_is_limited() {
    let lines = |count: usize| (0..count).map(|i| format!("h{i}\n")).collect::<String>();
    assert_eq!(parse_file(&lines(MAX_HOSTS)).unwrap().len(), MAX_HOSTS);
    assert_eq!(parse_file(&lines(MAX_HOSTS + 1)), Err(HostsError::TooMany(MAX_HOSTS + 1)));
}

#[test]
fn this_host_is_known_by_its_names_and_addresses_but_not_by_loopback() {
    let (names, addresses) = (["node1".to_owned()], ["10.0.0.1".parse().unwrap(), "127.0.0.1".parse().unwrap()]);
    let is_self = |text: &str| parse_list(text).unwrap()[0].is_self(&names, &addresses);
    assert!(is_self("NODE1:7") && is_self("10.0.0.1") && is_self("[::ffff:10.0.0.1]") && is_self("self"));
    assert!(!is_self("node2") && !is_self("127.0.0.1:7001") && !is_self("10.0.0.2"));
}

proptest! {
    #[test]
    fn parsing_never_panics_and_hosts_survive_it(text in "[a-c0-9:\\[\\],.#= \n-]{0,60}|\\PC{0,40}") {
        for parsed in [parse_file(&text), parse_list(&text)].into_iter().flatten() {
            let again: Vec<String> = parsed.iter().map(Entry::shown).collect();
            let again = parse_file(&again.join("\n")).unwrap();
            prop_assert_eq!(
                again.iter().map(Entry::address).collect::<Vec<_>>(),
                parsed.iter().map(Entry::address).collect::<Vec<_>>()
            );
        }
    }
}
