//! The objects of one kind: a list, followed by a watch, in the form of `kube`'s watcher events. Two things differ from the watcher of `kube`: a page of a list
//! is never completely in memory (`items.rs`), and pages of large objects are small, because the API server keeps a page in memory, too.

use crate::items::Items;
use crate::raw::Raw;
use futures::stream::BoxStream;
use futures::{AsyncBufRead, StreamExt};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, Request};
use kube::runtime::watcher::{Error, Event};
use kube::{Api, Client, Resource, ResourceExt};
use std::pin::Pin;
use std::time::Duration;

/// Largest number of objects in a page of a list, and the number for the first page.
pub(crate) const PAGE: u32 = 500;
/// Smallest number of objects in a page of a list.
const LEAST: u32 = 16;
/// Intended size of a page of a list in bytes.
const PAGE_BYTES: u64 = 8 << 20;
/// Size of a list's page in bytes above which Berth gives up the page and begins the list again with smaller pages, because the API server ends a response that
/// takes a minute.
const MOST_BYTES: u64 = 4 * PAGE_BYTES;
/// Seconds after which the API server ends a watch; `MARGIN` later the watch counts as dead.
const WATCH_SECONDS: u32 = 290;
const MARGIN: Duration = Duration::from_secs(5);

/// The stream of a watch's events.
type Changes = BoxStream<'static, kube::Result<WatchEvent<Raw>>>;

/// Source of the objects of one kind.
pub(crate) struct Source {
    client: Client,
    objects: Api<Raw>,
    path: Request,
    selector: Option<String>,
    /// Largest number of objects in a page of a list, reduced after a page was too large.
    most: u32,
    state: State,
}

/// The progress of a source.
enum State {
    /// No object of the kind is known, and the list begins.
    Begin,
    /// The next page of the list is due, with its continue token and its largest number of objects.
    Between(Option<String>, u32),
    /// A page of the list is being read.
    Page(Box<Page>),
    /// The list is complete, or a watch has ended; the next watch begins at this resourceVersion.
    Listed(String),
    /// The watch is running, and has reached this resourceVersion.
    Watching(String, Changes),
}

struct Page {
    items: Items<Pin<Box<dyn AsyncBufRead + Send>>>,
    /// Limit on the number of objects with which the page was requested.
    limit: u32,
    objects: u64,
    bytes: u64,
}

impl Page {
    /// Number of objects to request for the list's next page, at most `most`.
    fn next_limit(&self, most: u32) -> u32 {
        let each = self.bytes.checked_div(self.objects).unwrap_or_default();
        let fit = PAGE_BYTES.checked_div(each).map_or(most, |fit| u32::try_from(fit).unwrap_or(most));
        fit.max(LEAST).min(most)
    }

    /// Smaller number of objects to request if this page is too large; `None` if the page is not too large, or was requested with the smallest number already.
    fn smaller(&self) -> Option<u32> {
        (self.bytes > MOST_BYTES && self.limit > LEAST).then(|| self.next_limit(fewer(self.limit)))
    }
}

/// Number of objects to request for a page after a page of `limit` objects was too large.
fn fewer(limit: u32) -> u32 {
    (limit / 4).max(LEAST)
}

impl Source {
    pub(crate) fn new(client: Client, resource: &ApiResource, selector: Option<String>) -> Self {
        let objects = Api::all_with(client.clone(), resource);
        let path = Request::new(Raw::url_path(resource, None));
        Self { client, objects, path, selector, most: PAGE, state: State::Begin }
    }

    /// The next event. After an error, the next call continues from the source's last position if that is possible; the caller pauses before the call.
    pub(crate) async fn next(&mut self) -> Result<Event<Raw>, Error> {
        loop {
            // An error makes the source list its objects again, unless the code below sets the source's state to another position.
            match std::mem::replace(&mut self.state, State::Begin) {
                State::Begin => {
                    self.state = State::Between(None, self.most);
                    return Ok(Event::Init);
                }
                State::Between(token, limit) => {
                    let page = self.page(token, limit).await.map_err(Error::InitialListFailed)?;
                    self.state = State::Page(Box::new(page));
                }
                State::Page(page) => {
                    if let Some(event) = self.read(page).await? {
                        return Ok(event);
                    }
                }
                State::Listed(version) => match self.objects.watch(&self.watch_params(), &version).await {
                    Ok(changes) => self.state = State::Watching(version, changes.boxed()),
                    Err(error) => {
                        self.state = State::Listed(version);
                        return Err(Error::WatchStartFailed(error));
                    }
                },
                State::Watching(version, changes) => {
                    if let Some(event) = self.change(version, changes).await? {
                        return Ok(event);
                    }
                }
            }
        }
    }

    /// Requests a page of the list. The request names no resourceVersion, so the API server reads the list from etcd.
    async fn page(&mut self, token: Option<String>, limit: u32) -> kube::Result<Page> {
        let params =
            ListParams { label_selector: self.selector.clone(), continue_token: token, ..ListParams::default() };
        let request = self.path.list(&params.limit(limit)).map_err(kube::Error::BuildRequest)?;
        let body: Pin<Box<dyn AsyncBufRead + Send>> = Box::pin(self.client.request_stream(request).await?);
        Ok(Page { items: Items::new(body), limit, objects: 0, bytes: 0 })
    }

    /// Reads the next object of a page, or the end of the list. At the end of a page that is not the last page of the list, the result is `None`.
    async fn read(&mut self, mut page: Box<Page>) -> Result<Option<Event<Raw>>, Error> {
        let broken = |error| Error::InitialListFailed(kube::Error::ReadEvents(error));
        let next = page.items.next().await;
        if next.is_err() {
            // The API server has cut off the page of the list, perhaps because the page took too long.
            self.most = fewer(page.limit);
        }
        if let Some(text) = next.map_err(broken)? {
            page.objects = page.objects.saturating_add(1);
            page.bytes = page.bytes.saturating_add(u64::try_from(text.len()).unwrap_or(u64::MAX));
            let bad = |error| Error::InitialListFailed(kube::Error::SerdeError(error));
            let object = serde_json::from_str(&text).map_err(bad)?;
            if let Some(smaller) = page.smaller() {
                // The objects of a page that is too large come again with the new list.
                self.most = smaller;
            } else {
                self.state = State::Page(page);
            }
            return Ok(Some(Event::InitApply(object)));
        }
        let limit = page.next_limit(self.most);
        let meta = page.items.meta().map_err(broken)?;
        let written = |text: Option<String>| text.filter(|text| !text.is_empty());
        match (written(meta.token), written(meta.resource_version)) {
            (Some(token), _) => {
                self.state = State::Between(Some(token), limit);
                Ok(None)
            }
            (None, Some(version)) => {
                self.state = State::Listed(version);
                Ok(Some(Event::InitDone))
            }
            (None, None) => Err(Error::NoResourceVersion),
        }
    }

    fn watch_params(&self) -> WatchParams {
        let params = WatchParams { label_selector: self.selector.clone(), ..WatchParams::default() };
        params.timeout(WATCH_SECONDS)
    }

    /// The next change that the watch shows; `None` if the watch has ended.
    async fn change(&mut self, version: String, mut changes: Changes) -> Result<Option<Event<Raw>>, Error> {
        let patience = Duration::from_secs(u64::from(WATCH_SECONDS)).saturating_add(MARGIN);
        let Ok(Some(next)) = tokio::time::timeout(patience, changes.next()).await else {
            self.state = State::Listed(version);
            return Ok(None);
        };
        let event = match next {
            Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => Event::Apply(object),
            Ok(WatchEvent::Deleted(object)) => Event::Delete(object),
            Ok(WatchEvent::Bookmark(mark)) => {
                self.state = State::Watching(mark.metadata.resource_version, changes);
                return Ok(None);
            }
            Ok(WatchEvent::Error(status)) => {
                // A watch error 410 means that the API server no longer has the changes since the resourceVersion, so the source lists its objects again.
                if status.code != 410 {
                    self.state = State::Watching(version, changes);
                }
                return Err(Error::WatchError(status));
            }
            Err(error) => {
                self.state = State::Watching(version, changes);
                return Err(Error::WatchFailed(error));
            }
        };
        let (Event::Apply(object) | Event::Delete(object)) = &event else { return Ok(Some(event)) };
        let version =
            object.resource_version().filter(|version| !version.is_empty()).ok_or(Error::NoResourceVersion)?;
        self.state = State::Watching(version, changes);
        Ok(Some(event))
    }
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
