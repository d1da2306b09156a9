//! The placement that is up in a network namespace.

use crate::kernel::hook::{self, Hooks};
use crate::netns::Netns;
use crate::program::Maps;
use crate::saved_state::SavedState;
use crate::{Error, Result};

/// An attached program, and the record of what was changed.
pub(crate) struct Attached {
    pub(crate) state: SavedState,
    pub(crate) maps: Maps,
    /// The kernel's id of the program.
    pub(crate) program_id: u32,
}

impl Attached {
    /// Finds the placement of a namespace.
    pub(crate) async fn find(netns: Netns) -> Result<Self> {
        let state = SavedState::load(netns)?.ok_or(Error::NotUp)?;
        let first = state.ports.first().ok_or(Error::NotUp)?;
        let Hooks::Clsact { ours: Some(program_id), .. } = hook::list(first.ifindex).await? else {
            return Err(Error::NotUp);
        };
        Ok(Self { state, maps: Maps::open(netns, program_id)?, program_id })
    }
}
