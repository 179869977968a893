"""What tensors need beside the table: creation, copies, transfer, printing, changes in place."""
