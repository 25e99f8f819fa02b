"""What KV memory is worth: paged, too little of it, below the device."""
