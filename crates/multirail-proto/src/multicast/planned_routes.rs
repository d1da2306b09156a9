//! A plan as its hosts look things up in it. The same for all of them, so they can share one.

use super::members::{MemberId, Members};
use super::pieces::Pieces;
use super::plan::{Plan, PlanError};

/// Which way each piece goes.
#[derive(Debug)]
pub struct Routes {
    plan: Plan,
    /// By tree and host.
    children: Vec<Vec<Vec<MemberId>>>,
    /// By piece.
    tree_of: Vec<u16>,
    pieces: Pieces,
}

impl Routes {
    /// For these pieces, after a check of the plan.
    pub fn new(members: &Members, plan: Plan, pieces: Pieces) -> Result<Self, PlanError> {
        plan.check(members)?;
        let children = plan.trees.iter().map(|tree| tree.children(members)).collect();
        let tree_of = plan.tree_of(pieces.count());
        Ok(Self { plan, children, tree_of, pieces })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// How the data is cut.
    pub fn pieces(&self) -> Pieces {
        self.pieces
    }

    /// The tree that `piece` takes; the first for one that does not exist.
    pub fn tree_of(&self, piece: u32) -> usize {
        self.tree_of.get(piece as usize).map_or(0, |tree| usize::from(*tree))
    }

    /// Who sends to `host` in a tree; `None` for the root.
    pub fn parent(&self, tree: usize, host: MemberId) -> Option<MemberId> {
        self.plan.trees[tree].parent[host as usize]
    }

    /// Whom `host` sends to in a tree, first things first.
    pub fn children(&self, tree: usize, host: MemberId) -> &[MemberId] {
        &self.children[tree][host as usize]
    }

    pub(super) fn trees(&self) -> std::ops::Range<usize> {
        0..self.plan.trees.len()
    }
}
