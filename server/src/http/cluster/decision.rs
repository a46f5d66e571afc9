//! Selects the node that handles a request.

use std::sync::Arc;

use actix_web::http::StatusCode;

use crate::http::cluster::peer_auth::PeerRole;
use crate::http::operation::HandledBy;
use crate::http::problem::Problem;
use tidewire::cluster::placement::{Place, Placement};
use tidewire::id::SourceId;

/// The node that handles a request next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// The node that has received it.
    Here,
    /// Forward the request to the node at this address, in this role.
    Forward(PeerRole, Arc<str>),
    /// Wait briefly: another node is taking over this role from a node that leaves.
    Wait(PeerRole),
}

/// Selects the node for a request to the node with this name. `role` is as for [`next`].
pub(super) fn next_named(placement: &dyn Placement, name: &str, role: Option<PeerRole>) -> Result<Next, Problem> {
    if placement.me().as_str() == name {
        return Ok(Next::Here);
    }
    if role.is_some() {
        return Err(PeerRole::Named.unavailable());
    }
    let members = placement.members();
    match members.iter().find(|(known, _)| known.as_str() == name) {
        Some((_, address)) => Ok(Next::Forward(PeerRole::Named, address.as_str().into())),
        None => {
            let known = members.iter().map(|(known, _)| known.as_str()).collect::<Vec<_>>().join(", ");
            let detail = format!("no node of the cluster has the name {name:?}; its nodes are {known}");
            Err(Problem::new(StatusCode::NOT_FOUND, "unknown_node", detail).of_field("node"))
        }
    }
}

/// Selects the node that handles a request next. `user` is the single user whose data the request reads or writes, if there is one.
/// `role` is this node's role if another node has sent the request.
pub(super) fn next(
    placement: &dyn Placement,
    handled_by: HandledBy,
    user: Option<&SourceId>,
    role: Option<PeerRole>,
) -> Result<Next, Problem> {
    if matches!(handled_by, HandledBy::AnyNode | HandledBy::NamedNode | HandledBy::Owners) {
        return Ok(Next::Here);
    }
    if role != Some(PeerRole::Sequencer)
        && let Some(user) = user
    {
        match placement.owner(user) {
            Place::Here => {}
            Place::At { address, .. } if role.is_none() => return Ok(Next::Forward(PeerRole::Owner, address)),
            Place::At { .. } | Place::Changing | Place::Nowhere => return Err(PeerRole::Owner.unavailable()),
        }
    }
    if handled_by != HandledBy::Sequencer {
        return Ok(Next::Here);
    }
    match placement.sequencer() {
        Place::Here => Ok(Next::Here),
        Place::At { address, .. } if role != Some(PeerRole::Sequencer) => {
            Ok(Next::Forward(PeerRole::Sequencer, address))
        }
        Place::Changing if role != Some(PeerRole::Sequencer) => Ok(Next::Wait(PeerRole::Sequencer)),
        Place::At { .. } | Place::Changing | Place::Nowhere => Err(PeerRole::Sequencer.unavailable()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire::cluster::record::NodeName;
    use tidewire::storage::sequence::Sequence;

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

        fn members(&self) -> Vec<(NodeName, String)> {
            ["me", "b"].map(|name| (name.parse().unwrap(), format!("http://{name}"))).to_vec()
        }
    }

    fn place(text: &str) -> Place {
        match text {
            "here" => Place::Here,
            "nowhere" => Place::Nowhere,
            "changing" => Place::Changing,
            other => Place::At { node: other.parse().unwrap(), address: other.into() },
        }
    }

    /// Decides for each owner and each sequencer, and formats the results.
    fn decide(handled_by: HandledBy, has_user: bool, role: Option<PeerRole>) -> String {
        let user = SourceId::new("ann").unwrap();
        let mut by_owner = Vec::new();
        for owner in ["here", "o", "nowhere"] {
            let mut decisions = Vec::new();
            for sequencer in ["here", "s", "nowhere", "changing"] {
                let me = "me".parse().unwrap();
                let table = Table { owner: place(owner), sequencer: place(sequencer), me };
                decisions.push(match next(&table, handled_by, has_user.then_some(&user), role) {
                    Ok(Next::Here) => "here".to_owned(),
                    Ok(Next::Forward(_, address)) => address.to_string(),
                    Ok(Next::Wait(to)) => format!("wait-{}", to.name()),
                    Err(problem) => problem.code().split('_').next().unwrap().to_owned(),
                });
            }
            by_owner.push(decisions.join(" "));
        }
        by_owner.join(", ")
    }

    #[test]
    fn a_request_for_a_named_node_is_forwarded_only_to_that_node() {
        let table = Table { owner: Place::Nowhere, sequencer: Place::Nowhere, me: "me".parse().unwrap() };
        let decide = |name, role| next_named(&table, name, role).map_err(|problem| problem.code());
        assert_eq!(decide("me", None), Ok(Next::Here));
        assert_eq!(decide("me", Some(PeerRole::Named)), Ok(Next::Here));
        assert_eq!(decide("b", None), Ok(Next::Forward(PeerRole::Named, "http://b".into())));
        assert_eq!(decide("b", Some(PeerRole::Named)), Err("node_unavailable"));
        assert_eq!(decide("c", None), Err("unknown_node"));
    }

    #[test]
    fn a_request_is_forwarded_to_the_owner_then_to_the_sequencer_and_never_back() {
        let (owner, sequencer) = (Some(PeerRole::Owner), Some(PeerRole::Sequencer));
        let here = "here here here here, here here here here, here here here here";
        let refused = "owner owner owner owner";
        let at_sequencer = "here sequencer sequencer sequencer";
        let to_sequencer = "here s sequencer wait-sequencer";
        for (handled_by, has_user, role, expected) in [
            (HandledBy::AnyNode, true, None, here.to_owned()),
            (HandledBy::Owners, false, None, here.to_owned()),
            (HandledBy::Owner, false, None, here.to_owned()),
            (HandledBy::Owner, true, None, format!("here here here here, o o o o, {refused}")),
            (HandledBy::Owner, true, owner, format!("here here here here, {refused}, {refused}")),
            (HandledBy::Sequencer, true, None, format!("{to_sequencer}, o o o o, {refused}")),
            (HandledBy::Sequencer, true, owner, format!("{to_sequencer}, {refused}, {refused}")),
            (HandledBy::Sequencer, false, None, [to_sequencer; 3].join(", ")),
            (HandledBy::Sequencer, true, sequencer, [at_sequencer; 3].join(", ")),
        ] {
            assert_eq!(decide(handled_by, has_user, role), expected, "{handled_by:?} {has_user} {role:?}");
        }
    }
}
