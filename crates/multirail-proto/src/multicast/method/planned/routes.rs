//! A plan with the tables that its hosts need. It is the same for all hosts, so that they can share
//! one.

use crate::multicast::members::{MemberId, Members};
use crate::multicast::pieces::Pieces;
use crate::multicast::plan::{Plan, PlanError};

/// Which tree each piece takes.
#[derive(Debug)]
pub(crate) struct Routes {
    plan: Plan,
    /// By tree and host.
    children: Vec<Vec<Vec<MemberId>>>,
    /// By piece.
    tree_of: Vec<u16>,
    pieces: Pieces,
}

impl Routes {
    /// The routes of these pieces, after a check of the plan.
    pub(crate) fn new(members: &Members, plan: Plan, pieces: Pieces) -> Result<Self, PlanError> {
        plan.check(members)?;
        let children = plan.trees.iter().map(|tree| tree.children(members)).collect();
        let tree_of = plan.tree_of(pieces.count());
        Ok(Self { plan, children, tree_of, pieces })
    }

    /// The plan.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// How the data is cut.
    pub(crate) fn pieces(&self) -> Pieces {
        self.pieces
    }

    /// The tree of `piece`; the first tree for a piece that does not exist.
    pub(crate) fn tree_of(&self, piece: u32) -> usize {
        self.tree_of.get(piece as usize).map_or(0, |tree| usize::from(*tree))
    }

    /// The sender to `host` in a tree; `None` for the root.
    pub(crate) fn parent(&self, tree: usize, host: MemberId) -> Option<MemberId> {
        self.plan.trees[tree].parent[host as usize]
    }

    /// The receivers of `host` in a tree, the most urgent first.
    pub(crate) fn children(&self, tree: usize, host: MemberId) -> &[MemberId] {
        &self.children[tree][host as usize]
    }

    pub(super) fn trees(&self) -> std::ops::Range<usize> {
        0..self.plan.trees.len()
    }
}
