//! Certificates of the webhook server: creation, storage in one Secret, rotation, publication to the API server, and exchange without a restart.
//!
//! Every replica of Berth manages the certificates, whether or not it is the leader, because its webhooks must answer even while another operator, such as
//! Kueue, is the leader. Writes of certificates name the resourceVersion that was read, so that the API server refuses the later of two replicas' writes, and
//! that replica reads again.

pub mod inject;
pub mod issue;
pub mod keeper;
pub mod rotate;
pub mod served;
pub mod store;
