//! Single lists of all watched kinds, for a comparison with control's view.

use super::{Kind, Wanted, kinds};
use crate::first_list::reason;
use crate::raw::Raw;
use crate::source::PAGE;
use berth_control::event::{Change, Observation};
use kube::api::ListParams;
use kube::runtime::watcher;
use kube::{Api, Client};

/// Lists every watched kind once, for a comparison with control's view.
///
/// # Errors
/// The list of a kind that is not dispensable fails. Objects that do not decode are no error: a list leaves such objects out, as the watches do.
pub async fn list_all(client: &Client, wanted: &Wanted) -> kube::Result<Vec<Observation>> {
    let mut all = Vec::new();
    for kind in kinds(wanted).into_iter().filter(|kind| kind.is_wanted(&wanted.job_kinds)) {
        let served = kind.is_served(client).await;
        all.extend(kind.reports_served.map(|reports_served| reports_served(served)));
        if !served {
            continue;
        }
        match list(client, &kind).await {
            // The decoding of a complete list cannot fail, because objects that do not decode are left out one by one.
            Ok(objects) => all.extend((kind.decode)(Change::Reset(objects)).ok()),
            Err(error) if kind.dispensable => {
                all.push(kind.unlisted(Some(reason(&watcher::Error::InitialListFailed(error)))));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

async fn list(client: &Client, kind: &Kind) -> kube::Result<Vec<Raw>> {
    let objects: Api<Raw> = Api::all_with(kind.client(client), &kind.resource);
    let mut all = Vec::new();
    let first = ListParams { label_selector: kind.selector.clone(), ..ListParams::default().limit(PAGE) };
    let mut params = first.clone();
    loop {
        let page = objects.list(&params).await?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = first.clone().continue_token(&token),
            None => return Ok(all),
        }
    }
}
