use super::*;
use crate::multicast::method_name::Method;
use crate::multicast::plan::Plan;
use crate::multicast::plan::bound::bound_bytes_s;
use proptest::prelude::*;

fn symmetric(count: usize, links: &[(usize, usize, f64)]) -> Vec<Vec<f64>> {
    let mut matrix = vec![vec![0.0; count]; count];
    for (one, other, rate) in links {
        matrix[*one][*other] = *rate;
        matrix[*other][*one] = *rate;
    }
    matrix
}

/// The load of each link and of each host's port to other clusters, from the trees over hosts.
fn loads_of(plan: &Plan, members: &Members) -> (Vec<Vec<f64>>, Vec<f64>, Vec<f64>) {
    let count = members.clusters().len();
    let (mut links, mut out, mut inward) =
        (vec![vec![0.0; count]; count], vec![0.0; members.count()], vec![0.0; members.count()]);
    for tree in &plan.trees {
        let rate = tree.rate_bytes_s.unwrap();
        for (to, from) in tree.parent.iter().enumerate() {
            let Some(from) = from else { continue };
            let to = to as u32;
            if !members.are_local(*from, to) {
                links[members.cluster(*from) as usize][members.cluster(to) as usize] += rate;
                out[*from as usize] += rate;
                inward[to as usize] += rate;
            }
        }
    }
    (links, out, inward)
}

fn assert_within(plan: &Plan, members: &Members, bandwidths: &Bandwidths) {
    let (links, out, inward) = loads_of(plan, members);
    let fits = |load: f64, capacity: f64| assert!(load <= capacity * (1.0 + 1e-9), "{load} of {capacity}: {plan:?}");
    for (from, row) in links.iter().enumerate() {
        row.iter().enumerate().for_each(|(to, load)| fits(*load, bandwidths.link(from, to)));
    }
    if let Some(access) = &bandwidths.access_bytes_s {
        out.iter().zip(access).for_each(|(load, capacity)| fits(*load, *capacity));
        inward.iter().zip(access).for_each(|(load, capacity)| fits(*load, *capacity));
    }
}

/// MOB paper, figure 2. The picture is not readable in the text, which gives: three hosts, trees of
/// 4, 1 and 4, and that x's access of 10 is used four times by the three trees. These links make
/// that the only best solution.
#[test]
fn figure_2_of_the_paper() {
    let members = Members::new(vec![0, 1, 2], 0).unwrap();
    let bandwidths = Bandwidths {
        link_bytes_s: symmetric(3, &[(0, 1, 5.0), (0, 2, 5.0), (1, 2, 4.0)]),
        access_bytes_s: Some(vec![10.0; 3]),
    };
    let plan = Plan::of(Method::Balanced, &members, Some(&bandwidths)).unwrap();
    let mut trees: Vec<_> =
        plan.trees.iter().map(|tree| (tree.parent.clone(), tree.rate_bytes_s.unwrap().round())).collect();
    trees.sort_by(|one, other| one.0.cmp(&other.0));
    let expected =
        [(vec![None, Some(0), Some(0)], 1.0), (vec![None, Some(0), Some(1)], 4.0), (vec![None, Some(2), Some(0)], 4.0)];
    assert_eq!(trees, expected);
    assert!((plan.rate_bytes_s().unwrap() - 9.0).abs() < 1e-6);
    assert_within(&plan, &members, &bandwidths);
}

#[test]
fn the_four_clusters_reach_the_bound() {
    for (slow, expected) in [(false, 15.0), (true, 9.8)] {
        let (ad, bc) = if slow { (0.8, 0.8) } else { (3.0, 6.0) };
        let links = [(0, 1, 10.0), (0, 2, 4.0), (0, 3, ad), (1, 2, bc), (1, 3, 8.0), (2, 3, 5.0)];
        let bandwidths = Bandwidths::of_links(symmetric(4, &links.map(|(a, b, rate)| (a, b, rate * 1e6))));
        let members = Members::new((0..16).map(|host| host / 4).collect(), 0).unwrap();
        let plan = Plan::of(Method::Balanced, &members, Some(&bandwidths)).unwrap();
        assert_within(&plan, &members, &bandwidths);
        assert!((plan.rate_bytes_s().unwrap() / 1e6 - expected).abs() < 1e-5, "{plan:?}");
    }
}

/// MOB paper, figure 6: the port of each host is the limit, and all hosts' ports are used.
#[test]
fn all_hosts_of_a_cluster_forward() {
    let members = Members::new((0..16).map(|host| host / 4).collect(), 1).unwrap();
    let bandwidths = Bandwidths { link_bytes_s: vec![vec![1000.0; 4]; 4], access_bytes_s: Some(vec![12.5; 16]) };
    let plan = Plan::of(Method::Balanced, &members, Some(&bandwidths)).unwrap();
    assert_within(&plan, &members, &bandwidths);
    assert!((plan.rate_bytes_s().unwrap() - 50.0).abs() < 1e-4, "{plan:?}");
}

/// Links of random clusters, some of them missing, none to a cluster's own.
fn network(clusters: std::ops::Range<usize>) -> impl Strategy<Value = (Members, Bandwidths)> {
    let sizes = prop::collection::vec(1usize..5, clusters);
    let parts = (sizes, prop::collection::vec(0u32..100, 144), prop::option::of(prop::collection::vec(1u32..50, 48)));
    (parts, any::<prop::sample::Index>()).prop_map(|((sizes, rates, access), root)| {
        let count = sizes.len();
        let cluster_of: Vec<u32> = sizes.iter().enumerate().flat_map(|(c, s)| (0..*s).map(move |_| c as u32)).collect();
        let hosts = cluster_of.len();
        let rate = |from: usize, to: usize| match rates[from * 12 + to] {
            few if few < 20 => 0.0,
            rate => f64::from(rate) * 12_345.6,
        };
        let bandwidths = Bandwidths {
            link_bytes_s: (0..count).map(|from| (0..count).map(|to| rate(from, to)).collect()).collect(),
            access_bytes_s: access.map(|access| (0..hosts).map(|host| f64::from(access[host]) * 23_456.7).collect()),
        };
        (Members::new(cluster_of, root.index(hosts) as u32).unwrap(), bandwidths)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_capacity_is_exceeded_and_without_host_limits_the_bound_is_reached((members, bandwidths) in network(2..6)) {
        let bound = bound_bytes_s(&members, &bandwidths);
        match Plan::of(Method::Balanced, &members, Some(&bandwidths)) {
            Err(PlanError::Unreachable(_)) => prop_assert_eq!(bound, 0.0),
            Err(other) => prop_assert!(false, "{}", other),
            Ok(plan) => {
                prop_assert_eq!(plan.check(&members), Ok(()));
                assert_within(&plan, &members, &bandwidths);
                let rate = plan.rate_bytes_s().unwrap();
                prop_assert!(rate <= bound * (1.0 + 1e-9));
                // Edmonds 1973: as many trees fit as the smallest cut allows.
                if bandwidths.access_bytes_s.is_none() {
                    prop_assert!(rate >= bound * (1.0 - 1e-4), "{} of {}", rate, bound);
                }
                prop_assert_eq!(Plan::of(Method::Balanced, &members, Some(&bandwidths)), Ok(plan));
            }
        }
    }

    #[test]
    fn many_clusters_come_near_the_bound_and_are_not_slower_than_fpfr((members, mut bandwidths) in network(6..12)) {
        bandwidths.access_bytes_s = None;
        let Ok(fpfr) = Plan::of(Method::Fpfr, &members, Some(&bandwidths)) else { return Ok(()) };
        let plan = Plan::of(Method::Balanced, &members, Some(&bandwidths)).unwrap();
        prop_assert_eq!(plan.check(&members), Ok(()));
        prop_assert_eq!(fpfr.check(&members), Ok(()));
        assert_within(&plan, &members, &bandwidths);
        assert_within(&fpfr, &members, &bandwidths);
        let (rate, simple) = (plan.rate_bytes_s().unwrap(), fpfr.rate_bytes_s().unwrap());
        prop_assert!(rate >= simple * (1.0 - 1e-4), "{} after {}", rate, simple);
        prop_assert!(rate >= 0.9 * bound_bytes_s(&members, &bandwidths), "{} of {}", rate, bound_bytes_s(&members, &bandwidths));
    }
}
