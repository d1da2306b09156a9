//! What is to be done with an entry that the sender announced, from what the destination has.

use multirail_tree::dir::Kind;
use multirail_tree::meta::Meta;
use multirail_tree::stat::Stat;

/// What was announced of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Announced {
    pub meta: Meta,
    pub bytes: u64,
    /// A hash of owner and attributes, if they are copied.
    pub extra: Option<[u8; 16]>,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plan {
    /// Nothing: the destination has the file.
    Keep,
    /// The mode has to be set, and nothing else.
    SetMode,
    /// The file is empty. It is made from the announcement.
    MakeEmpty,
    /// The sender has to send properties. The content is the same.
    Properties,
    /// The contents have to be compared.
    Compare,
    /// The sender has to send the content.
    Send,
    /// Something has the name that no file replaces.
    Refuse(Kind),
}

/// Decides from what the destination has under the name of an announced file. A file with the same
/// length and modification time counts as unchanged; with `by_content`, one with the same length is
/// compared.
pub(super) fn plan(announced: &Announced, there: Option<(&Stat, Option<[u8; 16]>)>, by_content: bool) -> Plan {
    let absent = if announced.bytes == 0 && announced.extra.is_none() { Plan::MakeEmpty } else { Plan::Send };
    let Some((there, extra)) = there else { return absent };
    match there.kind {
        Kind::File if there.bytes != announced.bytes => return absent,
        Kind::File => {}
        Kind::Symlink => return absent,
        Kind::Directory | Kind::Special => return Plan::Refuse(there.kind),
    }
    let time = |meta: &Meta| (meta.mtime_s, meta.mtime_ns);
    let same_time = time(&there.meta) == time(&announced.meta);
    let same_extra = announced.extra.is_none() || announced.extra == extra;
    match (same_time, same_extra) {
        _ if by_content && announced.bytes > 0 => Plan::Compare,
        // An empty file has one content only.
        (false, _) if announced.bytes == 0 => Plan::Properties,
        (false, _) => Plan::Send,
        (true, false) => Plan::Properties,
        (true, true) if there.meta.mode != announced.meta.mode => Plan::SetMode,
        (true, true) => Plan::Keep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A file as both sides may have it. Times and contents are few, so that they often agree.
    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Model {
        content: Vec<u8>,
        mtime_ns: u32,
        mode: u32,
        extra: u8,
    }

    fn model() -> impl Strategy<Value = Model> {
        let content = prop::collection::vec(0u8..2, 0..3);
        (content, 0u32..2, 0o600u32..0o602, 0u8..2).prop_map(|(content, mtime_ns, mode, extra)| Model {
            content,
            mtime_ns,
            mode,
            extra,
        })
    }

    fn meta(model: &Model) -> Meta {
        Meta { mode: model.mode, mtime_s: 0, mtime_ns: model.mtime_ns }
    }

    fn stat(kind: Kind, model: &Model) -> Stat {
        let bytes = model.content.len() as u64;
        Stat {
            kind,
            meta: meta(model),
            bytes,
            changed: (0, 0),
            owner: (0, 0),
            inode: (0, 0),
            links: 1,
            disk_bytes: bytes,
        }
    }

    proptest! {
        /// Carries the plan out on models of two files. Afterwards the destination equals the source,
        /// unless the lengths and times agree and the contents are not compared.
        #[test]
        fn the_destination_becomes_the_source(
            source in model(),
            there in prop::option::of((model(), 0u8..4)),
            by_content: bool,
            with_extra: bool,
        ) {
            let announced = Announced {
                meta: meta(&source),
                bytes: source.content.len() as u64,
                extra: with_extra.then_some([source.extra; 16]),
            };
            let kinds = [Kind::File, Kind::Symlink, Kind::Directory, Kind::Special];
            let known = there.as_ref().map(|(model, kind)| (stat(kinds[usize::from(*kind)], model), model.extra));
            let known = known.as_ref().map(|(stat, extra)| (stat, with_extra.then_some([*extra; 16])));
            let plan = plan(&announced, known, by_content);
            let kind = there.as_ref().map(|(_, kind)| kinds[usize::from(*kind)]);
            if let Some(kind @ (Kind::Directory | Kind::Special)) = kind {
                prop_assert_eq!(plan, Plan::Refuse(kind));
                return Ok(());
            }
            let there = there.map(|(model, _)| model).filter(|_| kind == Some(Kind::File));
            let result = match plan {
                Plan::Keep => there.clone().unwrap(),
                Plan::SetMode => Model { mode: source.mode, ..there.clone().unwrap() },
                // Without extra, an empty file has none.
                Plan::MakeEmpty => Model { content: Vec::new(), extra: 0, ..source.clone() },
                Plan::Properties => Model { content: there.clone().unwrap().content, ..source.clone() },
                Plan::Compare => {
                    prop_assert!(by_content);
                    source.clone()
                }
                Plan::Send => source.clone(),
                Plan::Refuse(_) => unreachable!(),
            };
            let unnoticed = there.is_some_and(|there| {
                there.content.len() == source.content.len() && there.mtime_ns == source.mtime_ns && !by_content
            });
            prop_assert!(result.content == source.content || unnoticed, "{plan:?} {result:?}");
            prop_assert_eq!((result.mode, result.mtime_ns), (source.mode, source.mtime_ns));
            prop_assert!(!with_extra || result.extra == source.extra, "{:?}", plan);
            // What is the same already costs nothing.
            if known.is_some_and(|(known, _)| known.kind == Kind::File) && result == source && unnoticed {
                prop_assert!(!matches!(plan, Plan::Send | Plan::Compare), "{:?}", plan);
            }
        }
    }
}
