//! Authentication and authorization by the API server: TokenReviews and SubjectAccessReviews.
//!
//! Verdicts are cached for a short time ([`memory`]), and few requests run at once: any client that reaches the port of `/metrics` may send a token, and a
//! flood of tokens must not cause a flood of TokenReviews.

mod memory;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use memory::{Limits, Memory};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Limits of the cache of RBAC verdicts about clients that send bearer tokens.
const BEARERS: Limits = Limits {
    entries: 1024,
    at_once: 4,
    rate: Some(10.0),
    deadline: Duration::from_secs(3),
    good: Duration::from_secs(60),
    bad: Duration::from_secs(10),
};
/// Limits of the cache of RBAC verdicts about users who write objects. The API server has authenticated these users, so a client cannot invent many user names.
const AUTHORS: Limits = Limits {
    entries: 4096,
    at_once: 16,
    rate: None,
    deadline: Duration::from_secs(3),
    good: Duration::from_secs(60),
    bad: Duration::from_secs(10),
};

/// The API server's verdict about a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The user is allowed.
    Allowed,
    /// RBAC does not allow the request of the user; the text is the message of RBAC.
    Forbidden(Arc<str>),
    /// The API server does not know the user's token.
    Unknown,
    /// Berth sent no TokenReview or SubjectAccessReview, because too many reviews about other users are running.
    Busy,
    /// The API server gave no verdict; the text is the reason.
    Unanswered(Arc<str>),
}

/// A user, as the API server has authenticated the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Name of the user.
    pub name: String,
    /// UID of the user, which distinguishes the user's account from an earlier account with the same name.
    pub uid: String,
    /// Groups of the user.
    pub groups: Vec<String>,
    /// The `extra` fields of the user, as the API server's authenticator sets them.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The permission about which RBAC is asked: a verb on a resource in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deed<'a> {
    /// Verb of the permission, such as `create`.
    pub verb: &'a str,
    /// API group of the resource.
    pub group: &'a str,
    /// Plural name of the resource.
    pub resource: &'a str,
    /// Namespace of the resource.
    pub namespace: &'a str,
}

/// Client that asks the API server for verdicts about users, and caches these verdicts.
#[derive(Clone)]
pub struct Access {
    client: Client,
    memory: Arc<Memory>,
}

impl Access {
    /// Access for clients that send bearer tokens.
    #[must_use]
    pub fn of_bearers(client: Client) -> Self {
        Self { client, memory: Arc::new(Memory::new(BEARERS)) }
    }

    /// Access for the authors of objects.
    #[must_use]
    pub fn of_authors(client: Client) -> Self {
        Self { client, memory: Arc::new(Memory::new(AUTHORS)) }
    }

    /// Verdict of the API server on a GET of one of Berth's own HTTP paths (such as `/metrics`) by the user whom a bearer token authenticates.
    pub async fn bearer_may_get(&self, token: String, path: &'static str) -> Verdict {
        let key = digest(&[token.as_bytes(), path.as_bytes()]);
        let client = self.client.clone();
        self.memory.verdict(key, || async move { bearer(&client, token, path).await }).await
    }

    /// Verdict of the API server on a verb that a user wants to perform.
    pub async fn may(&self, user: User, deed: Deed<'_>) -> Verdict {
        let Deed { verb, group, resource, namespace } = deed;
        let who = json!([user.name, user.uid, user.groups, user.extra]).to_string();
        let key = digest(&[who.as_bytes(), json!([verb, group, resource, namespace]).to_string().as_bytes()]);
        let words = format!(
            "User {:?} cannot {verb} resource {resource:?} in API group {group:?} in the namespace {namespace:?}",
            user.name
        );
        let attributes = ResourceAttributes {
            verb: Some(verb.to_owned()),
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec { resource_attributes: Some(attributes), ..spec_of(user) };
        let client = self.client.clone();
        self.memory.verdict(key, || async move { allowed(&client, spec, words).await }).await
    }
}

/// The cache key of a question about a user's access; the key has a digest in place of a token.
fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

async fn bearer(client: &Client, token: String, path: &str) -> Verdict {
    let spec = TokenReviewSpec { token, ..TokenReviewSpec::default() };
    let review = TokenReview { spec, ..TokenReview::default() };
    let status = match Api::<TokenReview>::all(client.clone()).create(&PostParams::default(), &review).await {
        Ok(answer) => answer.status.unwrap_or_default(),
        Err(error) => return Verdict::Unanswered(format!("TokenReview: {error}").into()),
    };
    let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else { return Verdict::Unknown };
    let user = User {
        name: user.username.unwrap_or_default(),
        uid: user.uid.unwrap_or_default(),
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
    };
    let words = format!("User {:?} cannot get path {path:?}", user.name);
    let attributes = NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".to_owned()) };
    let spec = SubjectAccessReviewSpec { non_resource_attributes: Some(attributes), ..spec_of(user) };
    allowed(client, spec, words).await
}

fn spec_of(user: User) -> SubjectAccessReviewSpec {
    SubjectAccessReviewSpec {
        user: Some(user.name),
        uid: Some(user.uid).filter(|uid| !uid.is_empty()),
        groups: Some(user.groups),
        extra: Some(user.extra).filter(|extra| !extra.is_empty()),
        ..SubjectAccessReviewSpec::default()
    }
}

async fn allowed(client: &Client, spec: SubjectAccessReviewSpec, words: String) -> Verdict {
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    match Api::<SubjectAccessReview>::all(client.clone()).create(&PostParams::default(), &review).await {
        Ok(answer) if answer.status.as_ref().is_some_and(|status| status.allowed) => Verdict::Allowed,
        Ok(_) => Verdict::Forbidden(words.into()),
        Err(error) => Verdict::Unanswered(format!("SubjectAccessReview: {error}").into()),
    }
}

#[cfg(test)]
pub(crate) mod tests;
