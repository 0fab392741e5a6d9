// Who gets into channels nearby that are not open to everybody: what this machine says of itself, and whom it admits to its own.
import Cryptography
import DaemonAPI
import Logging
import Nearby
import PTTBus
import PushToTalkCore
import RelayClient
import RelayProtocol
import RelayServer

/// Somebody who waits to be admitted to a channel that this machine hosts.
struct NearbyNewcomer: Hashable, Sendable {
    let channel: ChannelID
    let member: MemberID
    /// What the newcomer calls itself. Text of a stranger.
    let name: DisplayName
    /// What the channel is called.
    let channelName: DisplayName

    /// How requests name the newcomer.
    var id: String { "\(channel).\(member)" }
}

extension NearbyNewcomerDescription {
    init(_ newcomer: NearbyNewcomer, _ channel: HostedChannel) {
        self.init(
            id: newcomer.id, name: newcomer.name.text,
            channel: NearbyChannelDescription.id(channel.id, channel.identity.pin), channelName: channel.name.text)
    }
}

extension AdmissionRule {
    /// What the user chose; a code is made by chance.
    init(_ admission: NearbyAdmission) {
        switch admission {
        case .open: self = .open
        case .code: self = .code(InvitationCode())
        case .ask: self = .ask
        }
    }
}

extension NearbyChannels {
    /// Asks the host of a channel for its invitation.
    func invitation(
        to channel: NearbyChannel, code: String?, for caller: BusCaller
    ) async throws(PTChannelError) -> InvitationLink {
        let announcement = channel.announcement
        var credentials = InvitationCredentials(name: creator)
        if let code {
            guard let code = InvitationCode(code) else {
                throw PTChannelError(
                    .unknown, explanation: "a code has \(InvitationCode.digitCount) digits; give it as in '271828'")
            }
            // A code for an open channel is not told to a stranger who asks for none, nor is the join refused for it.
            if announcement.admission == .code { credentials.code = code }
        }
        let question = InvitationQuestion(
            for: announcement.channel, at: channel.places, pin: announcement.pin, with: credentials,
            identity: identity, loop: loop, logger: logger)
        questions[caller.busName] = question
        defer { if questions[caller.busName] === question { questions[caller.busName] = nil } }
        do throws(InvitationQuestionError) { return try await question.ask() } catch {
            if channel.means.contains(.bluetooth), !error.isAnswer { await bluetooth?.doubt() }
            throw PTChannelError(.unknown, explanation: Self.words(error, channel))
        }
    }

    /// Bluetooth shows a channel whose machine cannot be reached by IP.
    private static func words(_ error: InvitationQuestionError, _ channel: NearbyChannel) -> String {
        switch error {
        case .noPlace, .unreachable: guard channel.means == [.bluetooth] else { return "\(error)" }
        default: return "\(error)"
        }
        return
            "Bluetooth sees the channel, but no network leads to the machine of \(channel.announcement.creator) that hosts it: "
            + "bring both into one Wi-Fi, or switch on a hotspot on one of them, or connect them by Bluetooth PAN; then join again"
    }

    func cancelJoining(by caller: BusCaller) { questions[caller.busName]?.cancel() }

    /// Something happens to a hosted channel.
    func happened(_ change: NearbyHostChange, to id: ChannelID) {
        switch change {
        case .members: Task { await announce(id) }
        case .asks(let member, let name):
            guard let host = hosts[id] else { return }
            let newcomer = NearbyNewcomer(channel: id, member: member, name: name, channelName: host.channel.name)
            newcomers.append(newcomer)
            publish()
            newcomerAsks(newcomer)
        case .settled(let member):
            newcomers.removeAll { $0.channel == id && $0.member == member }
            publish()
        }
    }

    /// This machine hosts the channel no more.
    func forgetNewcomers(of id: ChannelID) {
        guard newcomers.contains(where: { $0.channel == id }) else { return }
        newcomers.removeAll { $0.channel == id }
        publish()
    }

    /// Has that called, on the loop, for each newcomer who begins to wait.
    func onNewcomer(_ handler: @escaping @Sendable (NearbyNewcomer) -> Void) { newcomerAsks = handler }

    func decide(_ isAdmitted: Bool, about id: String, by caller: BusCaller) async throws(PTChannelError) {
        guard let newcomer = newcomers.first(where: { $0.id == id }), let host = hosts[newcomer.channel] else {
            throw PTChannelError(
                .channelNotFound, explanation: "that newcomer waits no more; 'pttctl nearby waiting' shows who does")
        }
        await host.server.admit(isAdmitted, newcomer.member, to: newcomer.channel)
        logger.notice(
            isAdmitted ? "a newcomer is admitted" : "a newcomer is not admitted",
            metadata: ["channel": "\(host.channel.name)", "newcomer": "\(newcomer.name)"])
    }
}
