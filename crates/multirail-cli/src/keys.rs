//! The directory with this user's keys.

use crate::hints::error_with_hint;
use multirail::{AuthorizedKeys, Config, Identity, KnownHosts, Token};
use std::path::PathBuf;

/// Where keys are.
#[derive(clap::Args)]
pub struct KeysArgs {
    /// The directory of this user's keys: `id`, `known_hosts` and `authorized_keys` [default:
    /// ~/.config/multirail]
    #[arg(long, value_name = "DIR", env = "MULTIRAIL_KEYS", hide_env = true)]
    keys: Option<PathBuf>,
}

impl KeysArgs {
    /// The key pair, which is made when it is first used.
    pub fn identity(&self) -> anyhow::Result<Identity> {
        Ok(Identity::load_or_create(&self.directory()?.join("id"))?)
    }

    /// The configuration of sessions with these keys and the token.
    pub fn config(&self, token: Option<Token>) -> anyhow::Result<Config> {
        let config = Config::new();
        let (directory, identity) = match self.directory().and_then(|found| Ok((found, self.identity()?))) {
            Ok(found) => found,
            // With a token, no keys are needed.
            Err(_) if token.is_some() && self.keys.is_none() => return Ok(config.token(token)),
            Err(error) => return Err(error),
        };
        let config = config.identity(identity);
        let known_hosts = KnownHosts::from_file(&directory.join("known_hosts"))?;
        let authorized_keys = AuthorizedKeys::from_file(&directory.join("authorized_keys"))?;
        Ok(config.token(token).known_hosts(known_hosts).authorized_keys(authorized_keys))
    }

    /// The directory of the keys.
    pub fn directory(&self) -> anyhow::Result<PathBuf> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let config = variable("XDG_CONFIG_HOME").or_else(|| Some(variable("HOME")?.join(".config")));
        let directory = self.keys.clone().or_else(|| Some(config?.join("multirail")));
        directory.ok_or_else(|| {
            error_with_hint("this user has no home directory for keys", "give a directory with `--keys DIR`")
        })
    }
}
