//! The decision which node handles a request.

use std::sync::Arc;

use crate::http::cluster::inside::Hop;
use crate::http::operation::HandledBy;
use crate::http::problem::Problem;
use tidewire::cluster::placement::{Place, Placement};
use tidewire::id::SourceId;

/// The node that handles a request next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// The node that has received it.
    Here,
    /// The node at this address, in this role.
    Pass(Hop, Arc<str>),
}

/// Returns the node that handles a request next. `user` is the user whose data it reads or writes, if there is a single one; `hop` is the
/// role for which another node has sent it here.
pub(super) fn next(
    placement: &dyn Placement,
    handled_by: HandledBy,
    user: Option<&SourceId>,
    hop: Option<Hop>,
) -> Result<Next, Problem> {
    if matches!(handled_by, HandledBy::AnyNode | HandledBy::Owners) {
        return Ok(Next::Here);
    }
    if hop != Some(Hop::Sequencer)
        && let Some(user) = user
    {
        match placement.owner(user) {
            Place::Here => {}
            Place::At { address, .. } if hop.is_none() => return Ok(Next::Pass(Hop::Owner, address)),
            Place::At { .. } | Place::Nowhere => return Err(Hop::Owner.unavailable()),
        }
    }
    if handled_by != HandledBy::Sequencer {
        return Ok(Next::Here);
    }
    match placement.sequencer() {
        Place::Here => Ok(Next::Here),
        Place::At { address, .. } if hop != Some(Hop::Sequencer) => Ok(Next::Pass(Hop::Sequencer, address)),
        Place::At { .. } | Place::Nowhere => Err(Hop::Sequencer.unavailable()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire::cluster::record::NodeName;
    use tidewire::storage::journal::Sequence;

    struct Table {
        owner: Place,
        sequencer: Place,
        me: NodeName,
    }

    impl Placement for Table {
        fn me(&self) -> &NodeName {
            &self.me
        }

        fn owner(&self, _: &SourceId) -> Place {
            self.owner.clone()
        }

        fn sequencer(&self) -> Place {
            self.sequencer.clone()
        }

        fn applied(&self) -> Sequence {
            Sequence::default()
        }
    }

    fn place(text: &str) -> Place {
        match text {
            "here" => Place::Here,
            "nowhere" => Place::Nowhere,
            other => Place::At { node: other.parse().unwrap(), address: other.into() },
        }
    }

    /// Decides for each owner and each sequencer, and returns the results as text.
    fn decide(handled_by: HandledBy, has_user: bool, hop: Option<Hop>) -> String {
        let user = SourceId::new("ann").unwrap();
        let mut decisions = Vec::new();
        for owner in ["here", "o", "nowhere"] {
            for sequencer in ["here", "s", "nowhere"] {
                let me = "me".parse().unwrap();
                let table = Table { owner: place(owner), sequencer: place(sequencer), me };
                decisions.push(match next(&table, handled_by, has_user.then_some(&user), hop) {
                    Ok(Next::Here) => "here".to_owned(),
                    Ok(Next::Pass(_, address)) => address.to_string(),
                    Err(problem) => problem.code().split('_').next().unwrap().to_owned(),
                });
            }
        }
        decisions.join(" ")
    }

    #[test]
    fn a_request_goes_to_the_owner_and_then_to_the_sequencer_and_never_back() {
        let (owner, sequencer) = (Some(Hop::Owner), Some(Hop::Sequencer));
        let here = "here here here here here here here here here";
        for (handled_by, has_user, hop, expected) in [
            (HandledBy::AnyNode, true, None, here),
            (HandledBy::Owners, false, None, here),
            (HandledBy::Owner, false, None, here),
            (HandledBy::Owner, true, None, "here here here o o o owner owner owner"),
            (HandledBy::Owner, true, owner, "here here here owner owner owner owner owner owner"),
            (HandledBy::Sequencer, true, None, "here s sequencer o o o owner owner owner"),
            (HandledBy::Sequencer, true, owner, "here s sequencer owner owner owner owner owner owner"),
            (HandledBy::Sequencer, false, None, "here s sequencer here s sequencer here s sequencer"),
            (
                HandledBy::Sequencer,
                true,
                sequencer,
                "here sequencer sequencer here sequencer sequencer here sequencer sequencer",
            ),
        ] {
            assert_eq!(decide(handled_by, has_user, hop), expected, "{handled_by:?} {has_user} {hop:?}");
        }
    }
}
