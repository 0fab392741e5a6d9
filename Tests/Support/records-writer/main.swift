import RelayStore
