// Spoken prompts on the speaker of the audio session.

import Audio

extension DeviceAudioSession {
    func play(_ prompt: PromptSound, number: UInt32) -> Bool {
        // A program that plays and records itself shares the devices with nobody.
        guard !isForProgram, !speakerBlocked else { return false }
        do throws(AudioError) {
            return try openSpeaker().play(prompt, number: number)
        } catch {
            speakerBlocked = true
            handler?(.playbackFailed(reason: "\(error)"))
            return false
        }
    }

    func stopPrompt() { speaker?.stopPrompt() }
}
