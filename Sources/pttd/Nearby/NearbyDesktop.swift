// Channels nearby on the user's desktop: what its menu shows, and what a click there does.
import DaemonAPI
import Logging
import PTTBus
import PushToTalkCore
import RelayProtocol
import SystemUI

/// What the desktop's menu is about.
struct NearbyDesktop {
    /// Where it is shown; nil: nowhere.
    var ui: SystemUI?
    /// The submenu is open.
    var isBrowsing = false
    /// The channel that is joined by a click, and has not let this machine in yet.
    var joining: String?
    /// A click creates a channel.
    var isCreating = false
    /// The caller for the user at the desktop, which is not a program on the bus.
    static let caller = BusCaller(busName: "")
}

extension NearbyChannels {
    /// Shows what is nearby there from now on.
    func show(on ui: SystemUI) {
        desktop.ui = ui
        publish()
    }

    /// The user clicked on the desktop. On the loop.
    func desktopWants(_ event: SystemUIEvent) {
        switch event {
        case .browseNearby(let isOn):
            desktop.isBrowsing = isOn
            Task { await browse() }
        case .joinNearby(let id): joinByClick(id)
        case .createNearby: createByClick()
        case .decideNewcomer(let id, let isAdmitted):
            Task {
                do throws(PTChannelError) {
                    try await decide(isAdmitted, about: id, by: NearbyDesktop.caller)
                } catch {
                    tell(error.explanation)
                }
            }
        case .talkPressed, .talkReleased, .leave: break
        }
    }

    /// The next click takes the place of one whose channel has not let this machine in yet.
    private func joinByClick(_ id: String) {
        guard desktop.joining != id else { return }
        if desktop.joining != nil { cancelJoining(by: NearbyDesktop.caller) }
        desktop.joining = id
        publish()
        Task {
            var refusal: PTChannelError?
            do throws(PTChannelError) {
                _ = try await joinChannel(id, code: nil, by: NearbyDesktop.caller)
            } catch {
                refusal = error
            }
            guard desktop.joining == id else { return }
            desktop.joining = nil
            publish()
            if let refusal { tell(refusal.explanation) }
        }
    }

    /// A channel that is called as this machine, and open. There is one at most: a second click joins it again.
    private func createByClick() {
        guard !desktop.isCreating else { return }
        desktop.isCreating = true
        let own = hosts.values.first {
            $0.channel.generation == 0 && $0.channel.name == creator && $0.channel.admission == .open
        }
        Task {
            do throws(PTChannelError) {
                if let own {
                    _ = try await joinChannel(
                        NearbyChannelDescription(own.channel).id, code: nil, by: NearbyDesktop.caller)
                } else {
                    _ = try await createChannel(nil, admission: .open, by: NearbyDesktop.caller)
                }
                tell("\(creator) is open to everybody nearby; 'pttctl nearby delete' ends it")
            } catch {
                tell(error.explanation)
            }
            desktop.isCreating = false
        }
    }

    private func tell(_ words: String) { desktop.ui?.assumeIsolated { $0.announce(words) } }
}

extension SystemUINearby {
    /// The state that `org.pttd` publishes and the desktop shows.
    init(
        _ channels: [NearbyChannelDescription], newcomers: [NearbyNewcomerDescription], joining: String?,
        problem: String
    ) {
        self.init(
            channels: channels.map { channel in
                Channel(
                    id: channel.id, channel: channel.uuid, name: channel.name, creator: channel.creator,
                    members: Int(channel.members), admission: Admission(channel.admission), isOwn: channel.isOwn)
            },
            newcomers: newcomers.map { Newcomer(id: $0.id, name: $0.name, channelName: $0.channelName) },
            joining: joining, problem: problem)
    }
}

extension SystemUINearby.Admission {
    fileprivate init(_ name: String) {
        switch NearbyAdmission(rawValue: name) {
        case .open: self = .open
        case .code: self = .code
        case .ask: self = .ask
        case nil: self = .unknown
        }
    }
}
