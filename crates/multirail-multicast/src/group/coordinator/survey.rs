//! The driver of the survey: has hosts measure, and tells all hosts their clusters.

use super::shared::Shared;
use crate::discovery::measure::round_trips;
use crate::wire::ToHost;
use multirail_net::sync::lock;
use multirail_proto::multicast::coordinator::InviteState;
use multirail_proto::multicast::coordinator::survey::{Survey, SurveyAction};
use multirail_proto::multicast::{MemberId, Members};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Begins a survey of the hosts that have joined. It runs until it is over, or the task is aborted.
pub(super) fn begin(shared: &Arc<Shared>) -> JoinHandle<()> {
    let machine = shared.machine();
    let joined = (1..).zip(machine.hosts()).filter(|(_, host)| *host.state() == InviteState::Joined);
    let present = std::iter::once(0).chain(joined.map(|(member, _)| member)).collect();
    let members = machine.members();
    let clusters = (0..members.count() as MemberId).map(|member| members.cluster(member)).collect();
    drop(machine);
    *lock(&shared.survey) = Some(Survey::begin(shared.now_us(), clusters, present, shared.seed));
    tokio::spawn(run(shared.clone()))
}

async fn run(shared: Arc<Shared>) {
    loop {
        let mut actions = Vec::new();
        let timeout_us = match lock(&shared.survey).as_mut() {
            Some(survey) => {
                actions.extend(std::iter::from_fn(|| survey.poll_action()));
                survey.poll_timeout()
            }
            None => None,
        };
        actions.into_iter().for_each(|action| act(&shared, action));
        let Some(at_us) = timeout_us else {
            *lock(&shared.survey) = None;
            return;
        };
        let wait = Duration::from_micros(at_us.saturating_sub(shared.now_us()));
        if tokio::time::timeout(wait, shared.survey_news.notified()).await.is_err() {
            shared.with_survey(|survey, now_us| survey.handle_timeout(now_us));
        }
    }
}

fn act(shared: &Arc<Shared>, action: SurveyAction) {
    match action {
        SurveyAction::Measure { by: 0, round, targets } => {
            tracing::debug!(round, ?targets, "this host measures");
            let shared = shared.clone();
            tokio::spawn(async move {
                let hosts = shared.member.addresses(&targets).unwrap_or_default();
                let rtts_us = round_trips(&hosts).await;
                tracing::debug!(round, ?rtts_us, "this host has measured");
                shared.with_survey(|survey, now_us| survey.handle_measured(now_us, 0, round, &rtts_us));
            });
        }
        SurveyAction::Measure { by, round, targets } => {
            tracing::debug!(by, round, ?targets, "a host measures");
            shared.roster().measure(by).send_replace(Some(ToHost::Measure { round, targets }));
        }
        SurveyAction::Regroup(clusters) => regroup(shared, clusters),
    }
}

/// Tells every host its cluster, the root first. Hosts that joined after the survey began are where the host
/// is that they are near.
fn regroup(shared: &Arc<Shared>, clusters: Vec<u32>) {
    let roster = shared.roster();
    let clusters = roster.all_clusters(clusters);
    let members = match Members::new(clusters.clone(), 0) {
        Ok(members) => members,
        Err(error) => return tracing::error!(%error, "the survey's clusters"),
    };
    tracing::info!(clusters = members.clusters().len(), "measurements have found other clusters");
    shared.machine().handle_regroup(Arc::new(members));
    shared.member.regroup(clusters.clone(), roster.count() as MemberId, &[]);
    drop(roster);
    let wan_bytes = shared.machine().wan_bytes();
    shared.options.progress.update(|snapshot| {
        snapshot.hosts.iter_mut().zip(&clusters[1..]).for_each(|(host, cluster)| host.cluster = *cluster);
        snapshot.wan_bytes = wan_bytes;
    });
    shared.grouping.announce();
}
