// pttrelay invite: prints an invitation to a channel.
import ArgumentParser
import Cryptography
import Glibc
import RelayProtocol
import RelayServer
import RelayStore
import Terminal

/// Prints an invitation link.
struct InviteCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "invite", abstract: "Print an invitation to a channel: a link and, in a terminal, its QR code.",
        discussion: """
            Without options it prints the channel's standing invitation, for any number of devices, until it is \
            withdrawn. With --expires, --uses, --priority, --listen-only or --new it makes a new invitation. Anyone \
            who has a link may enrol with it: treat it like a password. A device that has enrolled is known by its \
            key, and no longer needs the link.

            With --end-to-end the channel's media key is in the link, behind #, and the relay never has it; the \
            channel is created if there is none of that name. Keep such a link: later links are made from it, with \
            --like.
            """)

    @Argument(help: "The channel's name.")
    var channel: String

    @OptionGroup var relay: RelayOptions

    @Option(help: ArgumentHelp("The port in the invitation, if it is not the one the relay listens on."))
    var port: UInt16?

    @Option(
        help: ArgumentHelp("For how long devices can enrol, as in 30min, 24h or 7d.", valueName: "time"),
        transform: { text in
            guard let seconds = lifetime(text) else {
                throw ValidationError("'\(text)' is not a time from 1min to 3650d; write one such as 30min, 24h or 7d")
            }
            return seconds
        })
    var expires: Int64?

    @Option(help: ArgumentHelp("How many devices can enrol.", valueName: "number"))
    var uses: Int?

    @Option(
        help: ArgumentHelp("The highest priority of its members' requests to talk, from 0 to 254.", valueName: "number")
    )
    var priority: UInt8 = 0

    @Flag(help: "Its members may listen, but not talk.")
    var listenOnly = false

    @Flag(help: "Make a new invitation that can be withdrawn separately, even without other options.")
    var new = false

    @Flag(help: "Encrypt end to end: the media key is in the link, and the relay does not know it.")
    var endToEnd = false

    @Option(
        help: ArgumentHelp(
            "An earlier link of the end-to-end channel, whose key the new link gets; '-' reads it from standard input.",
            valueName: "link"))
    var like: String?

    @Flag(help: "Give the end-to-end channel a new key: from then on every listener needs a new link.")
    var newKey = false

    @Flag(help: "List the channel's invitations, the latest first.")
    var list = false

    @Flag(
        help:
            "Print the address of the relay's page for browsers instead of the link; needs [web] in the configuration.")
    var web = false

    @Flag(inversion: .prefixedNo, help: "Draw the QR code. By default only in a terminal.")
    var qr: Bool?

    func validate() throws {
        if let uses, !(1...InvitationTerms.usesMaximum).contains(uses) {
            throw ValidationError("--uses is 1 to \(InvitationTerms.usesMaximum)")
        }
        if priority > RelayMembership.priorityMaximum {
            throw ValidationError("--priority is 0 to \(RelayMembership.priorityMaximum)")
        }
        if port == 0 { throw ValidationError("--port is 1 to 65535") }
        if newKey, like != nil { throw ValidationError("give --like or --new-key, not both") }
        if !endToEnd, newKey || like != nil { throw ValidationError("--like and --new-key are for --end-to-end") }
    }

    private var terms: AdministrationRequest.Terms? {
        guard new || endToEnd || listenOnly || priority > 0 || expires != nil || uses != nil else { return nil }
        return .init(lifetime: expires, uses: uses, priority: priority, isListenOnly: listenOnly)
    }

    func run() throws {
        try relay.administer { administration in
            if list { return try await printList(administration) }
            let earlier = try earlierLink()
            let origin: AdministrationRequest.MediaKeyOrigin? =
                !endToEnd
                ? nil
                : earlier.map { .earlierLink(channel: $0.channel.description, pin: $0.pin.description) }
                    ?? (newKey ? .new : .first)
            let request = AdministrationRequest.invite(channel: .named(channel), terms: terms, key: origin)
            guard case .invitation(let invitation) = try await administration.ask(request) else { return }
            var link = try InvitationLink(invitation.link)
            if let host = administration.host { link.host = host }
            if let port { link.port = port }
            if endToEnd { link.mediaKey = earlier?.mediaKey ?? newMediaKey() }
            let text = try web ? page(link) : link.text
            Console.say(text)
            if qr ?? (isatty(STDOUT_FILENO) == 1) { draw(text) }
            if let number = invitation.number {
                Console.complain("invitation \(number)" + expiry(invitation.expiresAt))
            }
        }
    }
}

extension InviteCommand {
    /// The link whose media key the new link gets. Only its channel and its relay are sent to the relay.
    private func earlierLink() throws -> InvitationLink? {
        guard let like else { return nil }
        let link = try InvitationLink(like == "-" ? readLine() ?? "" : like)
        guard link.mediaKey != nil else {
            throw RelayStateError(
                description: "the link of --like has no media key; give one that --end-to-end printed")
        }
        return link
    }

    private func newMediaKey() -> MediaKey? {
        Console.complain(
            "This link holds the channel's only copy of the media key: keep it, and make further links from it with --like."
        )
        return MediaKey(
            epoch: InvitationLink.mediaKeyEpoch, baseKey: SecureRandom.bytes(MediaKey.byteCountDefault))
    }

    private func page(_ link: InvitationLink) throws -> String {
        guard let address = link.pageAddress else {
            throw RelayStateError(
                description: "the relay serves no page: add [web] to its configuration and restart it")
        }
        return address
    }

    private func draw(_ text: String) {
        guard let code = QRCode(text) else {
            return Console.complain("pttrelay: the link is too long for a QR code")
        }
        Console.draw(code.lines.joined(separator: "\n") + "\n")
    }

    private func expiry(_ time: Int64?) -> String { time.map { ", until " + timeText($0) } ?? "" }

    private func printList(_ administration: Administration) async throws {
        guard case .invitations(let all, _) = try await administration.ask(.invitations(channel: .named(channel)))
        else {
            return
        }
        var rows = [["NUMBER", "STATE", "DEVICES", "PRIORITY", "MADE", "EXPIRES"]]
        for entry in all {
            let state =
                entry.isWithdrawn ? "withdrawn" : !entry.isOpen ? "over" : entry.isStanding ? "standing" : "open"
            rows.append([
                "\(entry.number)", state, "\(entry.used)" + (entry.uses.map { " of \($0)" } ?? ""),
                entry.isListenOnly ? "listens" : "\(entry.priority)", timeText(entry.madeAt),
                entry.expiresAt.map(timeText) ?? "-",
            ])
        }
        for line in table(rows) { Console.say(line) }
    }

    /// Seconds of a time such as 30min, 24h or 7d.
    static func lifetime(_ text: String) -> Int64? {
        let digits = text.prefix { $0.isASCII && $0.isNumber }
        let units: [Substring: Int64] = ["min": 60, "h": 3_600, "d": 86_400, "w": 604_800]
        guard let number = Int64(digits), let unit = units[text.dropFirst(digits.count)] else { return nil }
        let (seconds, isTooLong) = number.multipliedReportingOverflow(by: unit)
        return isTooLong || !(60...3_650 * 86_400).contains(seconds) ? nil : seconds
    }
}
