//! The RPCs.

use std::pin::Pin;

use futures_util::{Stream, StreamExt, stream};
use gazette_protocol::{
    AppendRequest, AppendResponse, ApplyRequest, ApplyResponse, CompressionCodec, Fragment,
    FragmentStoreHealthRequest, FragmentStoreHealthResponse, FragmentsRequest, FragmentsResponse,
    Header, LabelSelector, LabelSet, ListRequest, ListResponse, ReadRequest, ReadResponse,
    ReplicateRequest, ReplicateResponse, Sha1Sum, Status, Validate,
    append_request::Suspend,
    fragments_response,
    journal_server::Journal as Service,
    journal_spec::{self, suspend::Level},
};
use sha1::{Digest, Sha1};
use tonic::{Code, Request, Response, Streaming};

use super::{Call, FakeBroker, Fault, State, read};
use crate::router::without_meta;

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, tonic::Status>> + Send>>;

#[tonic::async_trait]
impl Service for FakeBroker {
    type ListStream = Answers<ListResponse>;
    type ReadStream = Answers<ReadResponse>;
    type ReplicateStream = Answers<ReplicateResponse>;

    async fn list(
        &self,
        request: Request<ListRequest>,
    ) -> Result<Response<Self::ListStream>, tonic::Status> {
        let request = request.into_inner();
        valid(&request)?;
        let fault = self.fault(Call::List).await?;
        if let Fault::Status(status) = fault {
            let answer = ListResponse {
                status: status.into(),
                header: self.header(),
                ..Default::default()
            };
            return Ok(Response::new(stream::iter([Ok(answer)]).boxed()));
        }
        if let Some(resume) = &request.watch_resume {
            if resume.etcd.cluster_id != self.header().etcd.cluster_id {
                return Err(tonic::Status::unknown("the header is of another cluster"));
            }
            self.revision(resume.etcd.revision + 1).await;
        }
        let selector = request.selector;
        if !request.watch {
            let (answers, _) = self.lock().snapshot(&selector);
            return Ok(Response::new(
                stream::iter(answers.into_iter().map(Ok)).boxed(),
            ));
        }
        let broker = self.clone();
        let changes = self.inner.changes.subscribe();
        let snapshots = stream::unfold((changes, None), move |(mut changes, seen)| {
            let (broker, selector) = (broker.clone(), selector.clone());
            async move {
                loop {
                    changes.borrow_and_update();
                    let (mut answers, now) = broker.lock().snapshot(&selector);
                    if seen != Some(now) {
                        answers.push(ListResponse::default());
                        let answers = stream::iter(answers.into_iter().map(Ok));
                        return Some((answers, (changes, Some(now))));
                    }
                    changes.changed().await.ok()?;
                }
            }
        });
        let answers = snapshots.flatten();
        Ok(Response::new(match fault {
            Fault::BreakAfter(count) => answers.take(count).chain(broken()).boxed(),
            Fault::EndAfter(count) => answers.take(count).boxed(),
            Fault::None
            | Fault::Status(_)
            | Fault::Rpc(..)
            | Fault::DropAnswer
            | Fault::Delay(_)
            | Fault::Hang => answers.boxed(),
        }))
    }

    async fn apply(
        &self,
        request: Request<ApplyRequest>,
    ) -> Result<Response<ApplyResponse>, tonic::Status> {
        let request = request.into_inner();
        valid(&request)?;
        let fault = self.fault(Call::Apply).await?;
        let mut state = self.lock();
        let mismatched = !state.revisions_match(&request);
        let refused = fault
            .status()
            .or_else(|| mismatched.then_some(Status::EtcdTransactionFailed));
        if refused.is_none() && !request.changes.is_empty() {
            state.revision += 1;
            for change in request.changes {
                match change.upsert {
                    Some(spec) => state.upsert(spec),
                    None => drop(state.journals.remove(&change.delete)),
                }
            }
        }
        let header = state.header();
        self.changed(state);
        if let Fault::DropAnswer = fault {
            return Err(lost());
        }
        let status = refused.unwrap_or(Status::Ok).into();
        Ok(Response::new(ApplyResponse { status, header }))
    }

    async fn read(
        &self,
        request: Request<ReadRequest>,
    ) -> Result<Response<Self::ReadStream>, tonic::Status> {
        let request = request.into_inner();
        valid(&request)?;
        let fault = self.fault(Call::Read).await?;
        self.revision(request.min_etcd_revision).await;
        if let Fault::Status(status) = fault {
            let answer = ReadResponse {
                status: status.into(),
                header: Some(self.lock().header_of(without_meta(&request.journal))),
                ..ReadResponse::default()
            };
            return Ok(Response::new(stream::iter([Ok(answer)]).boxed()));
        }
        let answers = read::answers(self.clone(), request).map(Ok);
        Ok(Response::new(match fault {
            Fault::BreakAfter(count) => answers.take(count).chain(broken()).boxed(),
            Fault::EndAfter(count) => answers.take(count).boxed(),
            Fault::None
            | Fault::Status(_)
            | Fault::Rpc(..)
            | Fault::DropAnswer
            | Fault::Delay(_)
            | Fault::Hang => answers.boxed(),
        }))
    }

    async fn append(
        &self,
        request: Request<Streaming<AppendRequest>>,
    ) -> Result<Response<AppendResponse>, tonic::Status> {
        let mut messages = request.into_inner();
        let opening = messages.message().await?;
        let opening = opening.ok_or_else(|| tonic::Status::unknown("no request"))?;
        valid(&opening)?;
        let fault = self.fault(Call::Append).await?;
        self.revision(opening.min_etcd_revision).await;
        let name = without_meta(&opening.journal).to_owned();
        if let Fault::Status(status) = fault {
            return Ok(Response::new(refusal(status, &self.lock(), &name)));
        }
        // As a broker does, it refuses before it takes content.
        if let Some(refused) = self.lock().refuses(&opening, &name) {
            return Ok(Response::new(refused));
        }
        let Some((content, chunks)) = collect(&mut messages).await? else {
            return Err(tonic::Status::unknown("unexpected end of stream"));
        };
        let mut state = self.lock();
        let answer = state.commit(&opening, &name, &content, chunks)?;
        self.changed(state);
        if let Fault::DropAnswer = fault {
            return Err(lost());
        }
        Ok(Response::new(answer))
    }

    async fn replicate(
        &self,
        _: Request<Streaming<ReplicateRequest>>,
    ) -> Result<Response<Self::ReplicateStream>, tonic::Status> {
        Err(tonic::Status::unimplemented("it has no peers"))
    }

    async fn list_fragments(
        &self,
        request: Request<FragmentsRequest>,
    ) -> Result<Response<FragmentsResponse>, tonic::Status> {
        let request = request.into_inner();
        valid(&request)?;
        let fault = self.fault(Call::ListFragments).await?;
        let state = self.lock();
        let name = without_meta(&request.journal);
        let header = state.header_of(name);
        let refuse = |status: Status| FragmentsResponse {
            status: status.into(),
            header: header.clone(),
            ..FragmentsResponse::default()
        };
        if let Fault::Status(status) = fault {
            return Ok(Response::new(refuse(status)));
        }
        let Some(journal) = state.journals.get(name) else {
            return Ok(Response::new(refuse(Status::JournalNotFound)));
        };
        let signed = request.signature_ttl.is_some();
        let stored = journal
            .stored
            .iter()
            .map(|stored| fragments_response::Fragment {
                spec: stored.fragment.clone(),
                signed_url: if signed {
                    stored.url.clone()
                } else {
                    String::new()
                },
            });
        let local = (!journal.local.is_empty() && request.end_mod_time == 0).then(|| {
            fragments_response::Fragment {
                spec: journal.local_fragment(),
                signed_url: String::new(),
            }
        });
        let mut fragments: Vec<_> = stored
            .chain(local)
            .filter(|fragment| fragment.spec.begin >= request.next_page_token)
            .collect();
        let limit = match usize::try_from(request.page_limit) {
            Ok(0) | Err(_) => 1000,
            Ok(limit) => limit,
        };
        let next_page_token = fragments
            .get(limit)
            .map_or(0, |fragment| fragment.spec.begin);
        fragments.truncate(limit);
        let status = Status::Ok.into();
        Ok(Response::new(FragmentsResponse {
            status,
            header,
            fragments,
            next_page_token,
        }))
    }

    async fn fragment_store_health(
        &self,
        request: Request<FragmentStoreHealthRequest>,
    ) -> Result<Response<FragmentStoreHealthResponse>, tonic::Status> {
        valid(request.get_ref())?;
        let fault = self.fault(Call::StoreHealth).await?;
        let state = self.lock();
        let unhealthy = (!state.store_error.is_empty()).then_some(Status::FragmentStoreUnhealthy);
        let status = fault.status().or(unhealthy).unwrap_or(Status::Ok);
        Ok(Response::new(FragmentStoreHealthResponse {
            status: status.into(),
            header: state.header(),
            store_health_error: state.store_error.clone(),
        }))
    }
}

impl FakeBroker {
    /// Waits until the revision is reached.
    async fn revision(&self, revision: i64) {
        let mut changes = self.inner.changes.subscribe();
        loop {
            changes.borrow_and_update();
            if self.lock().revision >= revision || changes.changed().await.is_err() {
                return;
            }
        }
    }
}

impl State {
    /// The messages of a snapshot, and what makes it differ from another one.
    fn snapshot(&self, selector: &LabelSelector) -> (Vec<ListResponse>, (usize, i64)) {
        const PAGE: usize = 25;
        let selector = selector.with_prefixes_as_names();
        let found: Vec<_> = self
            .journals
            .values()
            .filter(|journal| selector.matches(&journal.spec.label_set_with_meta()))
            .map(|journal| self.listed(journal))
            .collect();
        let newest = found
            .iter()
            .map(|journal| journal.mod_revision)
            .max()
            .unwrap_or(0);
        let differs = (found.len(), newest);
        let mut pages = found.chunks(PAGE).map(<[_]>::to_vec);
        let header = Header {
            route: gazette_protocol::Route::unrouted(),
            ..self.header()
        };
        let first = ListResponse {
            header,
            journals: pages.next().unwrap_or_default(),
            ..ListResponse::default()
        };
        let rest = pages.map(|journals| ListResponse {
            journals,
            ..ListResponse::default()
        });
        ([first].into_iter().chain(rest).collect(), differs)
    }

    fn revisions_match(&self, request: &ApplyRequest) -> bool {
        request.changes.iter().all(|change| {
            let name = change
                .upsert
                .as_ref()
                .map_or(&change.delete, |spec| &spec.name);
            let present = self
                .journals
                .get(name)
                .map_or(0, |journal| journal.mod_revision);
            change.expect_mod_revision == -1 || change.expect_mod_revision == present
        })
    }

    /// The answer to an append that cannot be done, whatever its content.
    fn refuses(&mut self, opening: &AppendRequest, name: &str) -> Option<AppendResponse> {
        let status = 'status: {
            let Some(journal) = self.journals.get_mut(name) else {
                break 'status Status::JournalNotFound;
            };
            let suspended = journal.spec.suspend_level() != Level::None;
            match opening.suspend() {
                Suspend::Resume | Suspend::Keep if !suspended => {}
                Suspend::Resume => {
                    journal.spec.suspend = Some(journal_spec::Suspend {
                        level: Level::None.into(),
                        offset: journal.head(),
                    });
                }
                Suspend::Keep => break 'status Status::Suspended,
                Suspend::NoResume if suspended => break 'status Status::Suspended,
                Suspend::NoResume => {}
                Suspend::IfFlushed | Suspend::Now => {
                    journal.spec.suspend = Some(journal_spec::Suspend {
                        level: Level::Full.into(),
                        offset: journal.head(),
                    });
                    break 'status Status::Suspended;
                }
            }
            let mismatched = opening.check_registers.as_ref().is_some_and(|check| {
                !journal.registers.labels.is_empty() && !check.matches(&journal.registers)
            });
            if mismatched {
                break 'status Status::RegisterMismatch;
            }
            if opening.offset != 0 && opening.offset != journal.head() {
                break 'status Status::WrongAppendOffset;
            }
            return None;
        };
        Some(refusal(status, self, name))
    }

    fn commit(
        &mut self,
        opening: &AppendRequest,
        name: &str,
        content: &[u8],
        total_chunks: i64,
    ) -> Result<AppendResponse, tonic::Status> {
        // Others may have appended while the content came.
        if let Some(refused) = self.refuses(opening, name) {
            return Ok(refused);
        }
        let header = self.header();
        let Some(journal) = self.journals.get_mut(name) else {
            return Err(tonic::Status::unknown("the journal is gone"));
        };
        if !content.is_empty() && !journal.spec.may_write() {
            return Ok(refusal(Status::NotAllowed, self, name));
        }
        let changes = opening.union_registers.is_some() || opening.subtract_registers.is_some();
        if content.is_empty() && changes {
            return Err(tonic::Status::unknown(
                "register modification requires content",
            ));
        }
        if let Some(subtract) = &opening.subtract_registers {
            journal.registers = LabelSet::subtract(&journal.registers, subtract);
        }
        if let Some(union) = &opening.union_registers {
            journal.registers = LabelSet::union(union, &journal.registers);
        }
        let begin = journal.head();
        journal.push(content);
        Ok(AppendResponse {
            header,
            commit: Some(Fragment {
                journal: name.to_owned(),
                begin,
                end: journal.head(),
                sum: Sha1Sum::from_digest(Sha1::digest(content).into()),
                compression_codec: CompressionCodec::None.into(),
                ..Fragment::default()
            }),
            registers: Some(journal.registers.clone()),
            total_chunks,
            ..AppendResponse::default()
        })
    }
}

fn refusal(status: Status, state: &State, name: &str) -> AppendResponse {
    let registers = (status == Status::RegisterMismatch).then(|| {
        state
            .journals
            .get(name)
            .map(|journal| journal.registers.clone())
            .unwrap_or_default()
    });
    AppendResponse {
        status: status.into(),
        header: state.header_of(name),
        registers,
        store_health_error: state.store_error.clone(),
        ..AppendResponse::default()
    }
}

/// Collects the content up to the commit. `None` if the client gave up.
async fn collect(
    messages: &mut Streaming<AppendRequest>,
) -> Result<Option<(Vec<u8>, i64)>, tonic::Status> {
    let mut content = Vec::new();
    let mut chunks = 0;
    while let Some(message) = messages.message().await? {
        chunks += 1;
        if !message.journal.is_empty() {
            return Err(tonic::Status::unknown("expected a chunk of content"));
        }
        if message.content.is_empty() {
            return match messages.message().await? {
                None => Ok(Some((content, chunks))),
                Some(_) => Err(tonic::Status::unknown(
                    "expected the end after an empty chunk",
                )),
            };
        }
        content.extend_from_slice(&message.content);
    }
    Ok(None)
}

fn valid(message: &impl Validate) -> Result<(), tonic::Status> {
    message
        .validate()
        .map_err(|error| tonic::Status::unknown(error.to_string()))
}

fn lost() -> tonic::Status {
    tonic::Status::new(Code::Unavailable, "the connection was lost")
}

fn broken<T: Send + 'static>() -> impl Stream<Item = Result<T, tonic::Status>> + Send {
    stream::iter([Err(lost())])
}
