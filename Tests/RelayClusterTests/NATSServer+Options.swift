// How tests connect to their server.
import NATS
import TestSupport

extension NATSServer {
    var options: NATSOptions {
        var options = NATSOptions(servers: [url], name: "test")
        options.timeout = .seconds(1)
        return options
    }
}
