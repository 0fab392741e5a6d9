// What controls of accessories do besides talking.
import Accessories
import Bridge
import ChannelService
import DaemonAPI
import Logging
import PushToTalkCore

extension ChannelStep {
    /// The step that a caller on the bus asks for.
    init(_ choice: ChannelChoice) {
        self =
            switch choice {
            case .up: .up
            case .down: .down
            case .name(let name): .name(name)
            }
    }
}

extension ChannelDirector {
    /// A control was pressed that does something else than talk. What cannot be done is told by a tone. On the loop.
    func controlWants(_ action: ControlAction, _ source: AccessorySource) {
        switch action {
        case .channelUp: changeByPress(.up)
        case .channelDown: changeByPress(.down)
        case .nearbyNext: joinNextNearby()
        case .replayLast: replayByPress()
        case .command(let words): run(words, source)
        case .none, .transmit, .emergency: break
        }
    }

    private func changeByPress(_ step: ChannelStep) {
        if let refusal = self.step(.change(step, isPress: true)) { refuse(refusal) }
    }

    private func joinNextNearby() {
        dependencies?.joinNextNearby { [weak self] refusal in self?.assumeIsolated { $0.refuse(refusal) } }
    }

    private func replayByPress() {
        guard let seat else { return refuse(Self.noChannel) }
        let refusal: PTChannelError? = channel.assumeIsolated { service in
            do throws(PTChannelError) { try service.replayLast(channelUUID: seat.uuid) } catch { return error }
            return nil
        }
        // The service has sounded the tone.
        if let refusal { dependencies?.refused(refusal) }
    }

    private func run(_ words: [String], _ source: AccessorySource) {
        guard let commands = dependencies?.commands else {
            let explanation =
                "\(source) is to run a command, which only a user's own pttd does, on the session bus; bind it to something else"
            logger.warning("no command is run", metadata: ["why": "\(explanation)"])
            return refuse(PTChannelError(.deviceManagementRestriction, explanation: explanation))
        }
        let failure: CommandError? = commands.assumeIsolated { runner in
            do throws(CommandError) { try runner.run(words, for: source) } catch { return error }
            return nil
        }
        if let failure {
            logger.warning("no command is run", metadata: ["source": "\(source)", "why": "\(failure)"])
            refuse(PTChannelError(.unknown, explanation: "\(failure)"))
        }
    }

    private func refuse(_ error: PTChannelError) {
        channel.assumeIsolated { $0.signal(.denied) }
        dependencies?.refused(error)
    }
}
