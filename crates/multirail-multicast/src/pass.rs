//! How the members of a group know each other: by passes that the root signs.
//!
//! A member is known by the key that its sessions prove. The root has seen that key when it invited the
//! member, and its pass says that the key belongs to this member of this group. So no member can pose
//! as another one or as the root, also where all of them know one token.

use multirail_net::{Identity, PublicKey};
use multirail_proto::multicast::MemberId;
use serde::{Deserialize, Serialize};

/// What a signature is for.
const CONTEXT: &str = "multirail broadcast member";

/// The root's signature of a member's key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pass(Vec<u8>);

impl Pass {
    /// Signs that `key` belongs to `member`.
    pub(crate) fn issue(root: &Identity, group: &[u8; 16], member: MemberId, key: PublicKey) -> Self {
        Self(root.sign(CONTEXT, &message(group, member, key)))
    }
}

fn message(group: &[u8; 16], member: MemberId, key: PublicKey) -> Vec<u8> {
    [&group[..], &member.to_le_bytes(), key.as_bytes()].concat()
}

/// What one member needs to know the others.
#[derive(Debug, Clone)]
pub(crate) struct Passes {
    /// The key of the root.
    pub(crate) root: PublicKey,
    pub(crate) group: [u8; 16],
    /// This member's pass.
    pub(crate) own: Pass,
}

impl Passes {
    /// Whether the peer whose session has proven `key` is `member`.
    pub(crate) fn is_member(&self, member: MemberId, key: PublicKey, pass: &Pass) -> bool {
        self.root.has_signed(CONTEXT, &message(&self.group, member, key), &pass.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_good_for_one_member_of_one_group_with_one_key() {
        let [root, other] = [(); 2].map(|()| Identity::generate());
        let [key, another] = [(); 2].map(|()| Identity::generate().public_key());
        let pass = Pass::issue(&root, &[1; 16], 3, key);
        let passes = |root: &Identity, group: [u8; 16]| Passes { root: root.public_key(), group, own: Pass::default() };
        assert!(passes(&root, [1; 16]).is_member(3, key, &pass));
        assert!(!passes(&root, [1; 16]).is_member(2, key, &pass), "another member");
        assert!(!passes(&root, [1; 16]).is_member(3, another, &pass), "another key");
        assert!(!passes(&root, [2; 16]).is_member(3, key, &pass), "another group");
        assert!(!passes(&other, [1; 16]).is_member(3, key, &pass), "another root");
        assert!(!passes(&root, [1; 16]).is_member(3, key, &Pass::default()), "no pass");
    }
}
