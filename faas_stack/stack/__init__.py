"""Stack files, and how ``carpool up`` runs them on this machine."""
