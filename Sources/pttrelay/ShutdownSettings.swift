// How a relay is going to end.
import RelayProtocol
import RelayServer

/// What the configuration says of the end.
struct ShutdownSettings: Sendable, Equatable {
    /// How long it waits for the end of what is said.
    var drainTime: Duration = .seconds(10)
    /// Where the members are to go on; nil: they come back here.
    var successor: RelayPlace?
}
