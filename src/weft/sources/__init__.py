"""Places and formats: what files hold, as records that know where they come from. No torch here."""
