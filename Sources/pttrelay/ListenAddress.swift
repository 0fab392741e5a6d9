// ADDRESS:PORT, as it is written on the command line and in the configuration.
import Glibc
import Logging
import QUIC
import RelayServer

/// The address and port that a relay listens on.
struct ListenAddress: Equatable {
    /// A numeric IP address.
    var address: String
    /// The port; 0 lets the system choose.
    var port: UInt16

    /// Every address of the machine, on the usual port.
    static let standard = ListenAddress(address: "::", port: RelayServerConfiguration.defaultPort)
    /// How it is written.
    static let expected = "an address and port such as \"0.0.0.0:4433\", \"[::]:4433\" or \"127.0.0.1:0\""

    init(address: String, port: UInt16) {
        self.address = address
        self.port = port
    }

    /// Reads `192.0.2.1:4433` or `[2001:db8::1]:4433`; nil for anything else.
    init?(argument: String) {
        guard let colon = argument.lastIndex(of: ":"), let port = UInt16(argument[argument.index(after: colon)...])
        else { return nil }
        var address = String(argument[..<colon])
        if address.hasPrefix("["), address.hasSuffix("]") {
            address = String(address.dropFirst().dropLast())
        } else if address.contains(":") {
            return nil
        }
        guard SocketAddress(address, port: port) != nil else { return nil }
        self.init(address: address, port: port)
    }

    /// Whether only this machine reaches it.
    var isLoopback: Bool { address == "::1" || address.hasPrefix("127.") }

    /// Logs where others than this machine reach what wants a token, and has no TLS.
    func warnOfNoTLS(_ what: String, _ logger: Logger) {
        guard !isLoopback else { return }
        logger.warning(
            "\(what) has no TLS and can be reached from other machines: anyone on the path can read the token",
            metadata: ["address": "\(text)"])
    }

    /// As it is written.
    var text: String { address.contains(":") ? "[\(address)]:\(port)" : "\(address):\(port)" }

    /// How members reach it as far as this machine can tell: the address itself, or the machine's name when it listens on
    /// every address.
    var invitationHost: String {
        guard let parsed = SocketAddress(address, port: port), parsed.isUnspecified else { return address }
        return Self.machineName ?? "localhost"
    }

    /// What this machine is called; nil: nothing.
    static var machineName: String? {
        var buffer = [CChar](repeating: 0, count: 256)
        guard gethostname(&buffer, buffer.count - 1) == 0, buffer[0] != 0 else { return nil }
        return String(decoding: buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}
