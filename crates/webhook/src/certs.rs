//! Certificates of the server: made, kept in one Secret, rotated, published to the API server, and served without a restart.
//!
//! Every replica does this by itself, whether or not it leads: while another operator leads, ours must serve already. Writes carry the
//! version that was read, so that one of two replicas with the same idea is refused and looks again.

pub mod inject;
pub mod issue;
pub mod keeper;
pub mod rotate;
pub mod served;
pub mod store;
