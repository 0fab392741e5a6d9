// The times and limits that the protocol's document and relay.proto name are those of the code.
import Glibc
import MonotonicTime
import SFrame
import Testing

@testable import RelayClient
@testable import RelayServer

@Suite struct DocumentedTimesTests {
    private func text(_ path: String) throws -> String {
        let here = #filePath
        let root = here.split(separator: "/", omittingEmptySubsequences: false).dropLast(3).joined(separator: "/")
        let file = try #require(fopen("\(root)/\(path)", "r"))
        defer { fclose(file) }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 65_536)
        while case let count = fread(&chunk, 1, chunk.count, file), count > 0 { bytes += chunk[..<count] }
        // Comments and paragraphs are wrapped anywhere.
        return String(decoding: bytes, as: UTF8.self).split { $0 == "\n" || $0 == " " || $0 == "/" }.joined(
            separator: " ")
    }

    private func seconds(_ time: Duration) -> String { "\(time.components.seconds) s" }

    @Test func `the document and the messages' file name the code's times`() throws {
        let (document, messages) = (try text("docs/relay-protocol.md"), try text("Sources/RelayProtocol/relay.proto"))
        let (granted, kept) = (seconds(RelayLimits().previousEpochTime), seconds(SFrameOpener.earlierEpochLifetime))
        #expect(document.contains("\(granted) for requests at the relay; \(kept) at a listener"))
        let epochs = "requests of the epoch before it for \(granted), and listeners keep that for \(kept)"
        #expect(messages.contains(epochs))
        let (regular, lossy) = (seconds(ReportSchedule.interval), seconds(ReportSchedule.lossInterval))
        #expect(document.contains("every \(regular) while receiving, every \(lossy) with loss"))
        #expect(messages.contains("Sent every \(regular) while media arrive, every \(lossy) while packets are lost"))
        #expect(document.contains("| hearing | client | \(seconds(HearingWatch.answerTimeout)) |"))
        #expect(document.contains("| conclusion | client | \(seconds(HearingWatch.conclusionTimeout)) |"))
        #expect(document.contains("`Join` within \(seconds(RelayLimits().joinTime)) of the handshake"))
    }

    /// With a space between thousands, from five digits on.
    private func grouped(_ number: Int) -> String {
        guard number >= 10_000 else { return "\(number)" }
        let rest = "\(number % 1_000)"
        return "\(number / 1_000) " + String(repeating: "0", count: 3 - rest.count) + rest
    }

    @Test func `the document names the code's limits of pushes and of answers`() throws {
        let (document, limits) = (try text("docs/relay-protocol.md"), RelayLimits())
        let ofMember = "\(limits.pushTokensPerMember) of one member"
        #expect(document.contains("\(ofMember), \(grouped(limits.pushTokens)) of a relay |"))
        #expect(document.contains("| the last \(grouped(limits.deadPushTokens)) are remembered |"))
        #expect(document.contains("the newest of each token, \(grouped(limits.pushesKept)) of a relay"))
        let (atOnce, later) = (limits.burstBytesOfAll >> 20, limits.burstBytesOfAllPerSecond >> 20)
        #expect(document.contains("of a worker | \(atOnce) MiB at once, \(later) MiB a second |"))
        let (own, further) = (limits.burstBytes >> 10, limits.burstBytesPerSecond >> 10)
        #expect(document.contains("burst answers to one client | \(own) KiB at once, \(further) KiB a second |"))
        let (given, more) = (limits.invitationBurst, limits.invitationsPerSecond)
        #expect(document.contains("channels nearby | \(given) at once, \(more) a second, for all clients together |"))
    }
}
