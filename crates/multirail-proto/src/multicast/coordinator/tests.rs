use super::*;

const WAIT_FOR_LOST_US: u64 = 10;
const GIVE_UP_AFTER_US: u64 = 100;

/// Three hosts in the clusters 0, 1 and 1.
fn coordinator() -> Coordinator {
    let members = Arc::new(Members::new(vec![0, 0, 1, 1], 0).unwrap());
    let (wait_for_lost_us, give_up_after_us) = (WAIT_FOR_LOST_US, GIVE_UP_AFTER_US);
    Coordinator::new(CoordinatorConfig { members, wait_for_lost_us, give_up_after_us }, 5)
}

fn status(transfer: u32, held_bytes: u64, is_done: bool) -> Option<TransferStatus> {
    Some(TransferStatus { transfer, held_bytes, resumed_bytes: 0, received_bytes: Vec::new(), is_done })
}

fn lose(coordinator: &mut Coordinator, now_us: u64, host: usize) {
    coordinator.handle_lost(now_us, host, format!("at {now_us}"));
}

#[test]
fn the_first_broadcast_begins_when_all_have_answered_or_answers_cease() {
    let mut it = coordinator();
    assert_eq!(it.begins_at_us(), None);
    lose(&mut it, 10, 0);
    assert_eq!(it.begins_at_us(), None, "no host has joined");
    it.handle_joined(20, 1);
    assert_eq!(it.begins_at_us(), Some(20 + ANSWER_GAP_US));
    it.handle_status(30, 1, None, Vec::new());
    assert_eq!(it.begins_at_us(), Some(30 + ANSWER_GAP_US));
    it.handle_failed(40, 2, "no".to_owned());
    assert_eq!(it.begins_at_us(), Some(40), "all have answered");
}

#[test]
fn without_any_host_that_joins_all_answers_are_awaited() {
    let mut it = coordinator();
    for host in 0..3 {
        assert_eq!(it.begins_at_us(), None);
        lose(&mut it, 10, host);
    }
    assert_eq!(it.begins_at_us(), Some(10));
}

#[test]
fn a_broadcast_is_settled_when_every_host_is_complete() {
    let mut it = coordinator();
    it.handle_broadcast(50, 7);
    for host in 0..3 {
        it.handle_joined(51, host);
        assert!(!it.is_settled(60));
        it.handle_status(60, host, status(6, 1, true), Vec::new());
        assert!(!it.is_complete(host), "another broadcast's");
        it.handle_status(61, host, status(7, 1, false), Vec::new());
        assert!(!it.is_settled(61));
        it.handle_status(62 + host as u64, host, status(7, 2, true), Vec::new());
        it.handle_status(80, host, status(7, 2, true), Vec::new());
        assert_eq!(it.hosts()[host].complete_after_us(), Some(12 + host as u64), "the first report");
    }
    assert!(it.is_settled(80));
    it.handle_broadcast(90, 8);
    assert!(!it.is_settled(90) && it.hosts().iter().all(|host| host.complete_after_us().is_none()));
}

#[test]
fn a_lost_host_is_waited_for_if_it_had_joined() {
    let mut it = coordinator();
    it.handle_broadcast(0, 0);
    it.handle_failed(1, 0, "no".to_owned());
    lose(&mut it, 1, 1);
    it.handle_joined(1, 2);
    it.handle_status(2, 2, status(0, 1, false), Vec::new());
    lose(&mut it, 20, 2);
    // Further attempts do not prolong the time.
    lose(&mut it, 25, 2);
    let lost = InviteState::Lost { why: "at 25".to_owned(), has_joined: true, since_us: 20 };
    assert_eq!(*it.hosts()[2].state(), lost);
    assert!(!it.is_settled(20 + WAIT_FOR_LOST_US - 1));
    assert!(it.is_settled(20 + WAIT_FOR_LOST_US));
    // A host that is back has the whole time again.
    it.handle_joined(31, 2);
    assert!(!it.is_settled(50));
    lose(&mut it, 50, 2);
    assert!(!it.is_settled(50 + WAIT_FOR_LOST_US - 1));
    assert!(it.is_settled(50 + WAIT_FOR_LOST_US));
}

#[test]
fn a_host_that_never_joined_is_not_waited_for() {
    let mut it = coordinator();
    it.handle_broadcast(0, 0);
    for host in 0..3 {
        assert!(!it.is_settled(1));
        lose(&mut it, 1, host);
    }
    assert!(it.is_settled(1));
}

#[test]
fn without_progress_incomplete_hosts_are_given_up() {
    let mut it = coordinator();
    it.handle_joined(1, 0);
    it.handle_broadcast(10, 0);
    assert!(!it.is_settled(10 + GIVE_UP_AFTER_US));
    assert!(it.is_settled(10 + GIVE_UP_AFTER_US + 1));
    it.handle_status(90, 0, status(0, 5, false), Vec::new());
    assert!(!it.is_settled(90 + GIVE_UP_AFTER_US));
    // A report without news is no progress.
    it.handle_status(120, 0, status(0, 5, false), Vec::new());
    assert!(it.is_settled(90 + GIVE_UP_AFTER_US + 1));
}

#[test]
fn bytes_between_clusters_and_complaints_are_gathered() {
    let mut it = coordinator();
    let received = |received_bytes: &[(MemberId, u64)]| {
        let received_bytes = received_bytes.to_vec();
        Some(TransferStatus { transfer: 0, held_bytes: 0, resumed_bytes: 0, received_bytes, is_done: false })
    };
    it.handle_broadcast(0, 0);
    it.handle_status(1, 0, received(&[(0, 9), (2, 1)]), vec![(3, "wrong pieces".to_owned()), (2, "silent".to_owned())]);
    it.handle_status(1, 1, received(&[(0, 20), (3, 9), (4, 77)]), vec![(3, "a flood".to_owned())]);
    it.handle_status(1, 2, received(&[(1, 300)]), Vec::new());
    assert_eq!(it.wan_bytes(), [[0, 320], [1, 0]]);
    it.handle_regroup(Arc::new(Members::new(vec![0, 1, 1, 0], 0).unwrap()));
    assert_eq!(it.wan_bytes(), [[0, 38], [300, 0]], "by the clusters that are known now");
    it.handle_regroup(Arc::new(Members::new(vec![0, 0, 1, 1], 0).unwrap()));
    let about: Vec<_> = it.complaints_about(3).collect();
    assert_eq!(about, [(0, "wrong pieces"), (1, "a flood")]);
    // Complaints outlive a broadcast, since reports repeat all of them.
    it.handle_broadcast(2, 1);
    assert_eq!(it.wan_bytes(), [[0, 0], [0, 0]]);
    assert_eq!(it.complaints_about(2).count(), 1);
}
