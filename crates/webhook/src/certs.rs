//! Certificates of the server: made, kept in one Secret, rotated, told to the API server, and served without a restart.
//!
//! Every replica does this by itself, whoever leads: while another operator leads, ours must serve already. Writes carry the
//! version of what was read, so that of two replicas with the same idea one is refused and looks again.

pub mod inject;
pub mod issue;
pub mod keeper;
pub mod rotate;
pub mod served;
pub mod store;
