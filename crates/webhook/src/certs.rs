//! Certificates of the webhook server: creation, storage in one Secret, rotation, publication to the API server, and exchange without a restart.
//!
//! Every replica does this work itself, whether or not it is the leader: its webhooks must answer even while another operator is the leader. Writes
//! of certificates name the resourceVersion that was read, so that the API server refuses the later of two replicas' writes, and that replica reads
//! again.

pub mod inject;
pub mod issue;
pub mod keeper;
pub mod rotate;
pub mod served;
pub mod store;
